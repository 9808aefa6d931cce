#include <ATen/DeviceAccelerator.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dtk/planner/device_terms.h>

#include <stdexcept>

#include "cost/kernel_needs.h"
#include "cost/reduction_scratch.h"

namespace dtk::planner {
namespace {

using at::Tensor;

class DeviceBytes {
 public:
  explicit DeviceBytes(c10::Device device)
      : device_(device), allocator_(*c10::getDeviceAllocator(device.type())) {}

  int64_t rounded() const { return stats().allocated_bytes[0].current; }
  int64_t asked() const { return stats().requested_bytes[0].current; }
  int64_t reserved() const { return stats().reserved_bytes[0].current; }
  int64_t max_rounded() const { return stats().allocated_bytes[0].peak; }
  int64_t max_asked() const { return stats().requested_bytes[0].peak; }
  void forget_peaks() { allocator_.resetPeakStats(device_.index()); }
  // Of all processes.
  int64_t taken() {
    at::accelerator::synchronizeDevice(device_.index());
    const auto [free, total] = allocator_.getMemoryInfo(device_.index());
    return static_cast<int64_t>(total - free);
  }

 private:
  c10::CachingDeviceAllocator::DeviceStats stats() const {
    return allocator_.getDeviceStats(device_.index());
  }

  const c10::Device device_;
  c10::DeviceAllocator& allocator_;
};

MeasuredTerm measured_rounding(DeviceBytes& bytes, const at::TensorOptions& on_device) {
  const int64_t before = bytes.rounded();
  const Tensor one = at::empty({1}, on_device.dtype(at::kByte));
  return {"rounding", "a storage of 1 byte", bytes.rounded() - before, 512};
}

MeasuredTerm measured_product(DeviceBytes& bytes, const at::TensorOptions& bf16, int capability) {
  const Tensor a = at::zeros({256, 256}, bf16);
  const int64_t before = bytes.rounded();
  const Tensor result = at::mm(a, a);
  return {"workspaces", "the first product", bytes.rounded() - before - static_cast<int64_t>(result.nbytes()),
          cublas_workspace(capability)};
}

MeasuredTerm fused_product(DeviceBytes& bytes, const at::TensorOptions& bf16) {
  const Tensor a = at::zeros({256, 256}, bf16), bias = at::zeros({256}, bf16);
  const int64_t before = bytes.rounded();
  bytes.forget_peaks();
  const Tensor result = at::addmm(bias, a, a);
  return {"workspaces", "a product with a bias",
          bytes.max_rounded() - before - static_cast<int64_t>(result.nbytes()), kCublasLtWorkspace};
}

// The sizes are multiples of what the kernel rounds them up to, but for the width. Heads lie within a token,
// as models have them: for others the kernel copies the output and its gradient.
MeasuredTerm measured_attention(DeviceBytes& bytes, const at::TensorOptions& bf16) {
  constexpr int64_t n = 2, heads = 16, tokens = 256, width = 72, rounded_width = 96;
  const Tensor q = at::zeros({n, tokens, heads, width}, bf16).transpose(1, 2);
  const auto [out, sums, rows_q, rows_k, max_q, max_k, seed, offset, unused] =
      at::_scaled_dot_product_flash_attention(q, q, q, 0.0, false, false);
  const int64_t before = bytes.asked();
  bytes.forget_peaks();
  const auto gradients = at::_scaled_dot_product_flash_attention_backward_symint(
      q, q, q, q, out, sums, rows_q, rows_k, max_q, max_k, 0.0, false, seed, offset);
  const int64_t kept = bytes.asked() - before;
  constexpr int64_t by_formula = 4 * (n * tokens * heads * rounded_width + n * heads * tokens);
  return {"attention_scratch", "flash backward of (2, 16, 256, 72) in bf16",
          bytes.max_asked() - before - kept, by_formula};
}

// The gradient of a bias of fc1 of a DiT-S/2, 8,192 tokens.
MeasuredTerm measured_reduction(DeviceBytes& bytes, const at::TensorOptions& bf16,
                                const DeviceTermOptions& device) {
  const Tensor x = at::zeros({8192, 1536}, bf16);
  const int64_t before = bytes.asked();
  bytes.forget_peaks();
  const Tensor sums = at::sum(x, at::IntArrayRef{0});
  return {"reduction_scratch", "a sum over the rows of (8192, 1536) in bf16",
          bytes.max_asked() - before - static_cast<int64_t>(sums.nbytes()),
          reduction_scratch(x, at::IntArrayRef{0}, at::kBFloat16, device).bytes()};
}

MeasuredTerm measured_pinned() {
  at::HostAllocator& allocator = *at::getHostAllocator(at::kCUDA);
  const int64_t before = allocator.get_stats().active_bytes.current;
  const Tensor block = at::empty({5000}, at::TensorOptions(at::kByte).pinned_memory(true));
  return {"pinned", "a page-locked storage of 5000 bytes",
          allocator.get_stats().active_bytes.current - before, 8192};
}

}  // namespace

std::vector<MeasuredTerm> measure_device_terms(c10::Device device, const DeviceTermOptions& numbers) {
  if (!device.is_cuda() || !device.has_index())
    throw std::invalid_argument("measure_device_terms: device " + device.str() +
                                "; wanted: cuda with an index");
  DeviceBytes bytes(device);
  const auto on_device = at::TensorOptions().device(device);
  const auto bf16 = on_device.dtype(at::kBFloat16);
  std::vector<MeasuredTerm> terms;
  terms.push_back(measured_rounding(bytes, on_device));
  terms.push_back(measured_product(bytes, bf16, numbers.compute_capability));
  terms.push_back(fused_product(bytes, bf16));
  terms.push_back(measured_attention(bytes, bf16));
  terms.push_back(measured_reduction(bytes, bf16, numbers));
  terms.push_back(measured_pinned());
  // With the kernels above; a training loads more.
  terms.push_back({"context", "what the device holds beside LibTorch's reserved memory",
                   bytes.taken() - bytes.reserved(), kEstimatedContext});
  return terms;
}

}  // namespace dtk::planner
