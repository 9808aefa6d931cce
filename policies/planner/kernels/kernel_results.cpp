#include "kernels/kernel_results.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>

#include "cost/call_scratch.h"

namespace dtk::planner {

using at::Tensor;

Tensor make(const Tensor& like, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type));
}

Tensor make_scratch(const Tensor& like, at::IntArrayRef sizes, at::ScalarType type) {
  return scratch_is_measured() ? Tensor() : make(like, sizes, type);
}

Tensor by_rows(const Tensor& like, int64_t width) {
  return make(like, {like.size(0), like.size(2), like.size(1), width}, like.scalar_type()).transpose(1, 2);
}

Three layer_norm_results(const Tensor& x, at::IntArrayRef normalized, at::ScalarType type) {
  at::DimVector statistics(x.sizes());
  for (size_t i = 0; i < normalized.size(); ++i) statistics[statistics.size() - 1 - i] = 1;
  return {at::empty_like(x, at::MemoryFormat::Contiguous), make(x, statistics, type),
          make(x, statistics, type)};
}

Three layer_norm_gradients(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                           Mask mask) {
  const auto like = [](bool wanted, const OptionalTensor& tensor) {
    return wanted && tensor && tensor->defined() ? at::empty_like(*tensor) : Tensor();
  };
  return {mask[0] ? at::empty_like(x, at::MemoryFormat::Contiguous) : Tensor(), like(mask[1], weight),
          like(mask[2], bias)};
}

LossTensors loss_tensors(const Tensor& a, const Tensor& b, int64_t reduction) {
  const at::DimVector sizes = at::infer_size_dimvector(a.sizes(), b.sizes());
  LossTensors loss;
  loss.result = make(a, sizes, at::result_type(a, b));
  if (reduction == at::Reduction::None) return loss;
  loss.result.unsafeGetTensorImpl()->set_sizes_contiguous({});
  loss.terms = make_scratch(a, sizes, loss.result.scalar_type());
  return loss;
}

}  // namespace dtk::planner
