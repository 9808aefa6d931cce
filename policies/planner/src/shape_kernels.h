// What LibTorch has no shape kernel for, and operators whose kernels take memory of their own.
//
// Sizes, strides and types of results are those of LibTorch's own kernels for the device of the arguments.
// Temporaries within an operator that are whole tensors made by other operators are made here too; what a
// kernel takes for itself (scratch) is not.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <map>
#include <string>

namespace dtk::planner {

/// By operator name, "aten::native_layer_norm"; for tensors on the CPU.
using CpuKernels = std::map<std::string, c10::KernelFunction>;

CpuKernels cpu_shape_kernels();
/// Adds those that differ from what a device does (cpu_kernels.cpp).
void add_cpu_kernels(CpuKernels& kernels);
/// `aten`: a library for DispatchKey::CUDA.
void register_cuda_shape_kernels(torch::Library& aten);

}  // namespace dtk::planner
