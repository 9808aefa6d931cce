// What LibTorch has no shape kernel for, and operators whose kernels take memory of their own.
//
// Sizes, strides and types of results are those of LibTorch's own kernels for the device of the arguments.
// Temporaries within an operator that are whole tensors made by other operators are made here too; what a
// kernel takes for itself (scratch) is not.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <torch/library.h>

#include <map>
#include <string>

namespace dtk::planner {

struct CpuKernel {
  using Takes = bool (*)(c10::ArrayRef<c10::IValue> arguments);
  c10::KernelFunction shapes;
  Takes takes =
      nullptr;  // null: any arguments; with those that it does not take, the operator's own body runs
};
/// By operator name, "aten::native_layer_norm"; for tensors on the CPU.
using CpuKernels = std::map<std::string, CpuKernel>;
/// Adds to them: add("native_layer_norm", &function), and what it takes.
inline auto adding_to(CpuKernels& kernels) {
  return [&kernels](const char* name, auto* function, CpuKernel::Takes takes = nullptr) {
    kernels.emplace(std::string("aten::") + name,
                    CpuKernel{c10::KernelFunction::makeFromUnboxedRuntimeFunction(function), takes});
  };
}

CpuKernels cpu_shape_kernels();
/// Adds those that differ from what a device does (cpu_kernels.cpp).
void add_cpu_kernels(CpuKernels& kernels);
/// Adds convolutions (cpu_convolutions.cpp).
void add_cpu_convolutions(CpuKernels& kernels);
/// Adds batch normalisation (batch_norms.cpp).
void add_cpu_batch_norms(CpuKernels& kernels);
/// `aten`: a library for DispatchKey::CUDA.
void register_cuda_shape_kernels(torch::Library& aten);
/// Likewise batch normalisation.
void register_cuda_batch_norms(torch::Library& aten);

}  // namespace dtk::planner
