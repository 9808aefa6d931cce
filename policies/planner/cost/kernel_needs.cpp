#include "cost/kernel_needs.h"

#include <algorithm>

namespace dtk::planner {

// Both as in parseChosenWorkspaceSize() and parseCUDABlasLtWorkspaceSize() of
// aten/src/ATen/cuda/CublasHandlePool.cpp, where no environment variable says otherwise.
int64_t cublas_workspace(int compute_capability) {
  constexpr int kHopper = 90;
  return compute_capability == kHopper ? 8 * 4096 * 1024 : 2 * 4096 * 1024 + 8 * 16 * 1024;
}

KernelNeeds& KernelNeeds::instance() {
  static auto* const needs = new KernelNeeds;
  return *needs;
}

void KernelNeeds::begin(const DeviceTermOptions& options) {
  const std::lock_guard lock(mutex_);
  options_ = options;
  calls_ = {};
}

Workspaces KernelNeeds::product(c10::StreamId stream, bool fused) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = calls_.products.try_emplace({std::this_thread::get_id(), stream}, false);
  Workspaces taken;
  if (is_new && options_.workspaces) taken.cublas = cublas_workspace(options_.compute_capability);
  if (fused && !known->second && options_.workspaces) taken.cublas_lt = kCublasLtWorkspace;
  known->second |= fused;
  return taken;
}

void KernelNeeds::convolution(c10::ArrayRef<int64_t> input, c10::ArrayRef<int64_t> weight) {
  std::vector<int64_t> sizes = input.vec();
  sizes.insert(sizes.end(), weight.begin(), weight.end());
  const std::lock_guard lock(mutex_);
  calls_.convolutions.insert(std::move(sizes));
}

void KernelNeeds::batch_norm(c10::ArrayRef<int64_t> input) {
  const std::lock_guard lock(mutex_);
  calls_.batch_norms.insert(input.vec());
}

void KernelNeeds::attention_scratch(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  calls_.attention_scratch = std::max(calls_.attention_scratch, bytes);
}

void KernelNeeds::reduction_scratch(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  calls_.reduction_scratch = std::max(calls_.reduction_scratch, bytes);
}

void KernelNeeds::unknown_scratch(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  calls_.unknown_scratch.insert(operation);
}

KernelCalls KernelNeeds::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

}  // namespace dtk::planner
