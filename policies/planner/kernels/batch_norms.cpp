// Batch normalisation, which instance normalisation is made of: LibTorch's own kernels on both devices, and
// cuDNN's.
#include <ATen/AccumulateType.h>
#include <ATen/Parallel.h>
#include <ATen/native/CanUse32BitIndexMath.h>
#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "cost/call_scratch.h"
#include "cost/kernel_needs.h"
#include "kernels/kernel_results.h"
#include "kernels/shape_kernels.h"

namespace dtk::planner {
namespace {

using at::MemoryFormat;
using at::Tensor;

Tensor defined_or_none(const OptionalTensor& tensor) {
  return tensor ? *tensor : Tensor();
}

// ---- the CPU: aten/src/ATen/native/Normalization.cpp, cpu/batch_norm_kernel.cpp

// In a format whose memory the kernels go through in order; others take the ways of TensorIterator.
bool is_dense(const Tensor& x) {
  return x.is_contiguous() || x.is_contiguous(MemoryFormat::ChannelsLast) ||
         x.is_contiguous(MemoryFormat::ChannelsLast3d);
}

MemoryFormat dense_format(const Tensor& x) {
  if (x.is_contiguous()) return MemoryFormat::Contiguous;
  return x.is_contiguous(MemoryFormat::ChannelsLast3d) ? MemoryFormat::ChannelsLast3d
                                                       : MemoryFormat::ChannelsLast;
}

bool is_contiguous_or_none(const Tensor& tensor) {
  return !tensor.defined() || tensor.is_contiguous();
}

// A dense tensor whose channels lie next to each other: one element a channel and sample, or channels last.
bool sums_by_rows(const Tensor& x) {
  return !x.is_contiguous() || x.numel() == x.size(0) * x.size(1);
}

// All dimensions but the channels'.
at::DimVector reduced_dims(const Tensor& x) {
  at::DimVector dims{0};
  for (int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
  return dims;
}

at::ScalarType sum_type(const Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

// Made by another operator, so in no case scratch: `kinds` sums of each channel and thread.
Tensor sums_of_threads(const Tensor& x, int64_t kinds) {
  return at::zeros({kinds, at::get_num_threads(), x.size(1)}, x.options().dtype(sum_type(x)));
}

// While an input is normalised; its statistics exist. `type`: theirs.
void cpu_normalise(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_var,
                   bool dense, bool train, double eps, at::ScalarType type) {
  if (dense) {
    make_scratch(x, {2, x.size(1)}, sum_type(x));  // factor and summand of each channel
    return;
  }
  Tensor invstd;
  if (!train) {
    const Tensor sum = at::add(running_var, eps), root = at::sqrt(sum);
    if (!scratch_is_measured()) invstd = at::empty_like(root);
  }
  if (scratch_is_measured()) return;
  const Tensor one = weight.defined() ? Tensor() : make(x, {}, type);
  const Tensor zero = bias.defined() ? Tensor() : make(x, {}, type);
}

Three cpu_batch_norm(const Tensor& x, const OptionalTensor& weight_, const OptionalTensor& bias_,
                     const OptionalTensor& mean_, const OptionalTensor& var_, bool train, double,
                     double eps) {
  const Tensor weight = defined_or_none(weight_), bias = defined_or_none(bias_);
  const Tensor running_mean = defined_or_none(mean_), running_var = defined_or_none(var_);
  const bool dense = is_dense(x);
  bool all_dense = dense;
  for (const Tensor& one : {weight, bias, running_mean, running_var})
    all_dense = all_dense && is_contiguous_or_none(one);
  Tensor out = at::empty_like(x, all_dense ? dense_format(x) : x.suggest_memory_format());
  const bool mixed = at::native::is_mixed_type(x, weight, bias, running_mean, running_var);
  const at::ScalarType type = mixed ? at::kFloat : x.scalar_type();
  const int64_t channels = train ? x.size(1) : 0;
  Tensor mean =
      train && !dense ? at::mean(x, reduced_dims(x), /*keepdim=*/false, type) : make(x, {channels}, type);
  Tensor invstd = make(x, {channels}, type);
  if (train && dense) {
    const Tensor mean_and_sum = make_scratch(x, {2, channels}, type);
    const bool has_rows_for_all = x.numel() / channels > at::get_num_threads();
    const Tensor sums = sums_by_rows(x) && has_rows_for_all ? sums_of_threads(x, 1) : Tensor();
  }
  cpu_normalise(x, weight, bias, running_var, all_dense, train, eps, type);
  return {std::move(out), std::move(mean), std::move(invstd)};
}

Three cpu_batch_norm_backward(const Tensor& grad, const Tensor& x, const OptionalTensor& weight_,
                              const OptionalTensor& mean_, const OptionalTensor& var_,
                              const OptionalTensor& save_mean, const OptionalTensor& save_invstd, bool train,
                              double, Mask mask) {
  const Tensor weight = defined_or_none(weight_);
  const bool mixed = at::native::is_mixed_type(x, weight, defined_or_none(mean_), defined_or_none(var_),
                                               defined_or_none(save_mean), defined_or_none(save_invstd));
  const at::ScalarType type = mixed ? at::kFloat : x.scalar_type();
  const auto of_channels = [&](bool wanted) { return wanted ? make(x, {x.size(1)}, type) : Tensor(); };
  const bool dense =
      is_dense(x) && is_dense(grad) && x.suggest_memory_format() == grad.suggest_memory_format();
  Tensor grad_x;
  if (mask[0] && !(dense && scratch_is_measured())) grad_x = at::empty_like(x, x.suggest_memory_format());
  Tensor grad_weight = of_channels(mask[1]), grad_bias = of_channels(mask[2]);
  if (!dense) {
    at::sum(grad, reduced_dims(grad));
    return {std::move(grad_x), std::move(grad_weight), std::move(grad_bias)};
  }
  // LibTorch makes it a second time, and lets go of the first one only then.
  if (mask[0]) grad_x = at::empty_like(x, dense_format(x));
  if (sums_by_rows(x)) {
    const bool reduced = at::isReducedFloatingType(x.scalar_type()), scratch = !scratch_is_measured();
    const Tensor ones =
        weight.defined() || reduced ? Tensor() : at::ones({x.size(1)}, x.options().dtype(type));
    // In reduced precision weight, mean and factor in fp32, else the factor where it is not known.
    const Tensor in_fp32 = reduced ? make_scratch(x, {3, x.size(1)}, at::kFloat) : Tensor();
    const Tensor invstd = of_channels(!reduced && scratch && !train), sums = sums_of_threads(x, 2);
  }
  return {std::move(grad_x), std::move(grad_weight), std::move(grad_bias)};
}

// ---- a device, LibTorch's own: aten/src/ATen/native/cuda/Normalization.cu

Three cuda_batch_norm(const Tensor& x, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                      const OptionalTensor&, bool, double, double) {
  const at::ScalarType type = at::toAccumulateType(x.scalar_type(), /*is_cuda=*/true);
  return {at::empty_like(x), make(x, {x.size(1)}, type), make(x, {x.size(1)}, type)};
}

bool has_channels_last(const Tensor& x) {
  return x.is_contiguous(MemoryFormat::ChannelsLast) || x.is_contiguous(MemoryFormat::ChannelsLast3d) ||
         (x.is_contiguous() && x.stride(1) == 1);
}

Three cuda_batch_norm_backward(const Tensor& grad, const Tensor& x, const OptionalTensor& weight,
                               const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                               const OptionalTensor&, bool train, double, Mask mask) {
  const bool small = at::native::canUse32BitIndexMath(x) && at::native::canUse32BitIndexMath(grad);
  const bool last = small && has_channels_last(x) && has_channels_last(grad);
  const bool reduces = train || mask[1] || mask[2];
  Tensor x_rows, grad_rows;  // copies where views cannot be
  if (reduces && !last) {
    x_rows = x.reshape({x.size(0), x.size(1), -1});
    grad_rows = grad.reshape(x_rows.sizes());
  }
  const bool fused = reduces && mask[0] && small && !has_channels_last(x);
  const auto of_channels = [&](bool wanted) {
    if (!wanted) return Tensor();
    return weight && weight->defined() ? at::empty_like(*weight) : make(x, {x.size(1)}, x.scalar_type());
  };
  const MemoryFormat format = fused ? MemoryFormat::Contiguous : x.suggest_memory_format();
  return {mask[0] ? at::empty_like(x, format) : Tensor(), of_channels(mask[1]), of_channels(mask[2])};
}

// ---- a device, cuDNN's: aten/src/ATen/native/cudnn/BatchNorm.cpp

// What cuDNN reserves for its backward pass is not known, and counted as 0 bytes.
Four cudnn_batch_norm(const Tensor& x, const Tensor& weight, const OptionalTensor&, const OptionalTensor&,
                      const OptionalTensor&, bool train, double, double) {
  if (train) KernelNeeds::instance().batch_norm(x.sizes());
  const int64_t channels = train ? x.size(1) : 0;
  return {at::empty_like(x, x.suggest_memory_format()), make(weight, {channels}, weight.scalar_type()),
          make(weight, {channels}, weight.scalar_type()), make(x, {0}, at::kByte)};
}

Three cudnn_batch_norm_backward(const Tensor& x, const Tensor& grad, const Tensor& weight,
                                const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                const OptionalTensor&, double, const Tensor&) {
  const Tensor grad_in_format = grad.contiguous(x.suggest_memory_format());
  return {at::empty_like(x, x.suggest_memory_format()), make(weight, weight.sizes(), weight.scalar_type()),
          make(weight, weight.sizes(), weight.scalar_type())};
}

}  // namespace

void add_cpu_batch_norms(CpuKernels& kernels) {
  const auto add = adding_to(kernels);
  add("native_batch_norm", &cpu_batch_norm);
  add("native_batch_norm_backward", &cpu_batch_norm_backward);
}

void register_cuda_batch_norms(torch::Library& aten) {
  aten.impl("native_batch_norm", &cuda_batch_norm);
  aten.impl("native_batch_norm_backward", &cuda_batch_norm_backward);
  aten.impl("cudnn_batch_norm", &cudnn_batch_norm);
  aten.impl("cudnn_batch_norm_backward", &cudnn_batch_norm_backward);
}

}  // namespace dtk::planner
