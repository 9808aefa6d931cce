#include "device/term_list.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>
#include <string>

#include "device/device_memory.h"

namespace dtk::planner {
namespace {

constexpr int64_t kKiB = 1024;
constexpr char kContextName[] = "context";

// What was measured of the term, and in place of what is an estimate.
void add_measured(DeviceTerm& term, const DeviceTermOptions& options) {
  for (const MeasuredTerm& one : options.measured) {
    if (one.name != term.name) continue;
    // Before a training loads its kernels: the estimate has them.
    if (term.name == kContextName) term.bytes = std::max(term.bytes, one.bytes);
    const std::string text = one.what + ": " + std::to_string(one.bytes) + " bytes, by the formula " +
                             std::to_string(one.by_formula);
    term.measured = term.measured.value_or(options.measured_on) + "; " + text;
  }
}

DeviceTerm rounding() {
  const MemoryPeaks peaks = SimulatedMemory::instance().peaks();
  return {
      .name = "rounding",
      .bytes = peaks.rounded - peaks.asked,
      .formula = "the highest sum of storages, each rounded up to 512 bytes, less the highest sum of them",
      .source = "c10/core/AllocatorConfig.h: kMinBlockSize"};
}

DeviceTerm pinned() {
  const MemoryPeaks peaks = PinnedMemory::instance().peaks();
  return {.name = "pinned",
          .bytes = peaks.rounded - peaks.asked,
          .on_host = true,
          .formula =
              "the highest sum of page-locked blocks, each rounded up to a power of two, less the highest "
              "sum of them",
          .source = "ATen/core/CachingHostAllocator.h: allocate()"};
}

std::string of_sizes(const std::string& what, size_t sizes) {
  return what + ", of " + std::to_string(sizes) + " different sizes here";
}

DeviceTerm cudnn(size_t convolutions, size_t batch_norms) {
  std::string calls;
  if (convolutions > 0) calls = of_sizes("for each convolution", convolutions);
  if (batch_norms > 0)
    calls += (calls.empty() ? "" : ", and ") + of_sizes("for each batch norm in training", batch_norms);
  return {.name = "convolution_workspaces",
          .known = false,
          .formula = "none: " + calls +
                     ", cuDNN chooses a kernel, and with it the workspace that a call takes and frees" +
                     (batch_norms > 0 ? ", and what a batch norm reserves for its backward pass" : ""),
          .source = "aten/src/ATen/native/cudnn/Conv_v8.cpp, BatchNorm.cpp"};
}

DeviceTerm kernel_scratch(const std::set<std::string>& operators) {
  return {.name = "kernel_scratch",
          .known = false,
          .formula =
              "none: a call of these may take memory for itself and free it, to reduce across blocks of "
              "threads, to sort, or for a copy in another layout: " +
              c10::Join(", ", operators),
          .source =
              "aten/src/ATen/native/cuda/Reduce.cuh: gpu_reduce_kernel(), layer_norm_kernel.cu, "
              "EmbeddingBackwardKernel.cu"};
}

DeviceTerm context() {
  return {.name = kContextName,
          .bytes = kEstimatedContext,
          .allocated = false,
          .formula = "a fixed 0.88 GB for the CUDA context and the code of loaded kernels",
          .source =
              "an estimate, not a formula: what a training in bf16 took on an H200; it depends on device, "
              "driver and the kernels used"};
}

}  // namespace

std::vector<DeviceTerm> term_list(const DeviceTermOptions& options, const KernelCalls& calls) {
  std::vector<DeviceTerm> terms;
  if (options.rounding) terms.push_back(rounding());
  if (options.attention_scratch) {
    terms.push_back({.name = "attention_scratch",
                     .bytes = calls.attention_scratch,
                     .booked = true,
                     .formula =
                         "of the largest backward call of attention: flash, fp32 accumulator of dq (N, T "
                         "to 128, H, D to 32, beyond 128 to 64) and row sums (N, H, T to 128); "
                         "memory-efficient, row sums, in fp32 also the product they are of; cuDNN's, as "
                         "measured, fp32 dq and row sums",
                     .source = "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: mha_bwd(); "
                               "cuda/attention_backward.cu; cudnn/MHA.cpp"});
  }
  if (options.reduction_scratch) {
    terms.push_back(
        {.name = "reduction_scratch",
         .bytes = calls.reduction_scratch,
         .booked = true,
         .formula =
             "of the largest sum or mean whose rows are many: blocks of threads sum parts of them, each "
             "result in fp32 a part, as many parts as " +
             std::to_string(options.multiprocessors) + " multiprocessors of " +
             std::to_string(options.threads_per_multiprocessor) + " threads have room for",
         .source = "aten/src/ATen/native/cuda/Reduce.cuh: setReduceConfig()"});
  }
  if (options.workspaces) {
    int64_t bytes = 0;
    for (const auto& [user, fused] : calls.products)
      bytes += cublas_workspace(options.compute_capability) + (fused ? kCublasLtWorkspace : 0);
    terms.push_back(
        {.name = "workspaces",
         .bytes = bytes,
         .formula = "for each pair of thread and stream that multiplies matrices, " +
                    std::to_string(calls.products.size()) +
                    " here: " + std::to_string(cublas_workspace(options.compute_capability) / kKiB) +
                    " KiB for cuBLAS (32 MiB at compute capability 9.0, else 8320 KiB), and 1024 "
                    "KiB for cuBLASLt if it multiplies with a bias; unless CUBLAS_WORKSPACE_CONFIG "
                    "or CUBLASLT_WORKSPACE_SIZE says otherwise",
         .source = "aten/src/ATen/cuda/CublasHandlePool.cpp"});
  }
  if (options.convolution_workspaces && calls.convolutions.size() + calls.batch_norms.size() > 0)
    terms.push_back(cudnn(calls.convolutions.size(), calls.batch_norms.size()));
  if (options.kernel_scratch && !calls.unknown_scratch.empty())
    terms.push_back(kernel_scratch(calls.unknown_scratch));
  if (options.context) terms.push_back(context());
  if (options.pinned) terms.push_back(pinned());
  for (DeviceTerm& term : terms) add_measured(term, options);
  return terms;
}

}  // namespace dtk::planner
