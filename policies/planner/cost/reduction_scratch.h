// What LibTorch's reduction kernel takes for itself on a CUDA device, by the formula of its launch.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dtk/planner/device_terms.h>

#include <cstdint>
#include <optional>

namespace dtk::planner {

/// Where rows outnumber the results, blocks of threads sum parts of a column into a buffer in global memory,
/// and count those that are done in another: both allocated and freed within the call.
struct ReductionScratch {
  int64_t buffer = 0;      // bytes; 0: one block sums a whole column
  int64_t semaphores = 0;  // bytes
  int64_t converted = 0;   // bytes of a copy of the input in the type of the result
  int64_t bytes() const { return buffer + semaphores + converted; }
};

/// Of a sum or mean over `dimensions` (all if empty) of `input`, in `type`. Source:
/// aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig(); the device's numbers are those of `options`.
ReductionScratch reduction_scratch(const at::Tensor& input, at::IntArrayRef dimensions, at::ScalarType type,
                                   const DeviceTermOptions& options);

/// Of this call; nothing if it is of another operator than those.
std::optional<ReductionScratch> reduction_scratch(const c10::OperatorHandle& op,
                                                  const torch::jit::Stack& stack,
                                                  const DeviceTermOptions& options);

}  // namespace dtk::planner
