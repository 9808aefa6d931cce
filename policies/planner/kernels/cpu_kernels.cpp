// Operators whose CPU kernels make whole tensors beside their results, and flash attention with its scratch.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ScalarOps.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <dtk/planner/torch_versions.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>

#include "cost/call_scratch.h"
#include "kernels/kernel_results.h"
#include "kernels/shape_kernels.h"

namespace dtk::planner {
namespace {

using at::Tensor;

// ---- normalisation: aten/src/ATen/native/layer_norm.cpp

Three layer_norm(const Tensor& input, at::IntArrayRef normalized, const OptionalTensor& weight,
                 const OptionalTensor&, double) {
  const Tensor x = input.contiguous();
  // Statistics have the type of the affine parameters, without them that of the input.
  const at::ScalarType type = weight && weight->defined() ? weight->scalar_type() : x.scalar_type();
  return layer_norm_results(x, normalized, type);
}

Three layer_norm_backward(const Tensor& grad, const Tensor& input, at::IntArrayRef, const Tensor&,
                          const Tensor&, const OptionalTensor& weight, const OptionalTensor& bias,
                          Mask mask) {
  const Tensor dy = grad.contiguous(), x = input.contiguous();
  return layer_norm_gradients(x, weight, bias, mask);
}

// ---- attention: transformers/attention.cpp, cpu/FlashAttentionKernel.cpp

// In memory as by_rows() has it.
Tensor zeros_by_rows(const Tensor& like) {
  return at::zeros({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

// What a thread of the kernel goes through at a time.
struct FlashTile {
  FlashTile(const Tensor& q, const Tensor& k)
      : queries(std::min(q.size(2), q.size(2) >= 768   ? int64_t{256}
                                    : q.size(2) >= 192 ? int64_t{64}
                                                       : int64_t{32})),
        keys(std::min<int64_t>(k.size(2), 512)),
        accumulate(at::toOpMathType(q.scalar_type())),
        is_reduced(accumulate != q.scalar_type()) {}
  const int64_t queries, keys;
  const at::ScalarType accumulate;
  const bool is_reduced;
};

std::tuple<Tensor, Tensor> flash(const Tensor& q, const Tensor& k, const Tensor& v, double, bool,
                                 const OptionalTensor&, std::optional<double>) {
  const FlashTile tile(q, k);
  // Seen of 2.15: as the queries lie in memory.
  const Tensor out = compiled_torch() >= TorchVersion{2, 15} ? at::empty_like(q) : by_rows(q, v.size(3));
  const Tensor logsumexp = make(q, {q.size(0), q.size(2), q.size(1)}, tile.accumulate).transpose(1, 2);
  const int64_t threads = at::get_num_threads();
  // Weights, two sums of each row, rows of the result.
  const Tensor scratch =
      make_scratch(q, {threads, tile.queries * (tile.keys + 2 + q.size(3))}, tile.accumulate);
  const Tensor reduced =
      make_scratch(q, {threads, tile.queries, tile.is_reduced ? tile.keys : 0}, q.scalar_type());
  return {out, logsumexp};
}

Three flash_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
                     const Tensor&, double, bool, const OptionalTensor&, std::optional<double>) {
  const FlashTile tile(q, k);
  const Three grads{zeros_by_rows(q), zeros_by_rows(k), zeros_by_rows(v)};
  const Tensor grad_by_rows = grad.transpose(1, 2).contiguous();
  const int64_t threads = at::get_num_threads();
  const int64_t weights = 2 * tile.queries * tile.keys;  // and their gradients
  const Tensor scratch = make_scratch(q, {threads, weights}, tile.accumulate);
  const Tensor reduced = make_scratch(q, {threads, tile.is_reduced ? weights : 0}, q.scalar_type());
  const int64_t busy = std::min(threads, q.size(0) * q.size(1));
  const Tensor sums = make_scratch(q, {busy, tile.queries}, tile.accumulate);
  return grads;
}

// ---- enlarging: UpSampleBilinear2d.cpp, cpu/UpSampleKernel.cpp

// Of small results, and of channels that lie last, the kernel goes through channels: it brings both to that
// form.
Tensor upsample_bilinear(const Tensor& x, c10::SymIntArrayRef size, bool, std::optional<double>,
                         std::optional<double>) {
  constexpr int64_t kMaxSides = 128, kMinChannels = 4;
  const auto last = at::MemoryFormat::ChannelsLast;
  const int64_t height = size[0].expect_int(), width = size[1].expect_int();
  const Tensor out =
      at::empty({x.size(0), x.size(1), height, width}, x.options().memory_format(x.suggest_memory_format()));
  const bool by_channels =
      (x.is_contiguous(last) && x.size(1) >= kMinChannels) || height + width <= kMaxSides;
  if (by_channels && x.scalar_type() != at::kByte) {
    const Tensor from = x.contiguous(last), into = out.contiguous(last);
  }
  return out;
}

Tensor upsample_bicubic_aa_backward(const Tensor& grad, c10::SymIntArrayRef, c10::SymIntArrayRef size, bool,
                                    std::optional<double>, std::optional<double>) {
  const Tensor in_order = grad.contiguous();
  at::DimVector sizes;
  for (const c10::SymInt& one : size) sizes.push_back(one.expect_int());
  return make(grad, sizes, grad.scalar_type());
}

// ---- gathers: Embedding.cpp, TensorAdvancedIndexing.cpp, cpu/ScatterGatherKernel.cpp, TensorCompare.cpp

Tensor embedding_backward(const Tensor& grad, const Tensor& indices, c10::SymInt rows, c10::SymInt, bool) {
  const Tensor by_index = indices.contiguous(), values = grad.contiguous();
  return at::zeros({rows.expect_int(), grad.size(-1)}, grad.options());
}

// Whole rows are summed, each by one thread: in order, under an index that names rows alone.
bool sums_rows(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  constexpr int64_t kMinWidth = 16;
  if (dim != 0 || self.numel() == 0 || source.numel() == 0 || self.dim() == 0 || index.dim() == 0)
    return false;
  if (!self.is_contiguous() || !source.is_contiguous() || index.stride(0) != 1) return false;
  for (int64_t i = 1; i < index.dim(); ++i) {
    const bool same = index.stride(i) == 0 || (index.stride(i) == 1 && index.size(i) <= 1);
    if (!same || index.size(i) != source.size(i)) return false;
  }
  return index.numel() / index.size(0) >= kMinWidth;
}

// In reduced precision sums are fp32: a row of them for each thread, which another operator makes, or all.
Tensor& scatter_add_to(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (index.numel() == 0 || !at::isReducedFloatingType(self.scalar_type())) return self;
  if (sums_rows(self, at::maybe_wrap_dim(dim, self.dim()), index, source)) {
    at::zeros({at::get_num_threads(), index.numel() / index.size(0)}, self.options().dtype(at::kFloat));
  } else {
    make_scratch(self, self.sizes(), at::kFloat);
  }
  return self;
}

Tensor& index_add_to(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                     const at::Scalar& alpha) {
  const Tensor in_order = index.contiguous();
  if (self.dim() < 2 || index.numel() == 0 || self.numel() == 0) return self;
  dim = at::maybe_wrap_dim(dim, self.dim());
  const bool at_an_end = dim == 0 || dim == self.dim() - 1;
  if (!at_an_end || !alpha.equal(1.0) || index.scalar_type() != at::kLong) return self;
  at::DimVector sizes(self.sizes()), strides(self.sizes().size(), 0);
  sizes[static_cast<size_t>(dim)] = index.numel();
  strides[static_cast<size_t>(dim)] = 1;
  if (source.sizes().equals(sizes)) self.scatter_add_(dim, in_order.as_strided(sizes, strides), source);
  return self;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const at::ScalarType type = at::result_type(a, b);
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), a.sizes()), b.sizes());
  const Tensor out = make(condition, sizes, type);
  const Tensor first = a.to(type), second = b.to(type);
  return out;
}

// ---- comparisons with a number: BinaryOps.cpp

// The number becomes a tensor, which lives until the call is over.
void compare_with_number(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::string overload = op.operator_name().overload_name;
  overload.replace(0, std::string_view("Scalar").size(), "Tensor");
  c10::IValue& other = torch::jit::peek(*stack, 1, op.schema().arguments().size());
  const Tensor number = at::native::wrapped_scalar_tensor(other.toScalar());
  other = number;
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(op.operator_name().name.c_str(), overload.c_str())
      .callBoxed(stack);
}

// ---- reductions and powers: ReduceOps.cpp, Pow.cpp

Tensor mean(const Tensor& x, at::OptionalIntArrayRef dims, bool keep, std::optional<at::ScalarType> dtype) {
  const at::ScalarType type = dtype.value_or(x.scalar_type());
  at::DimVector shape = at::meta::get_reduction_shape(x, dims.value_or(at::IntArrayRef{}), keep);
  Tensor out = make(x, shape, type);
  const int64_t count = x.numel() / std::max<int64_t>(1, out.numel());
  if (type != at::kHalf && type != at::kBFloat16) {
    at::sum_out(out, x, dims, keep, type).div_(count);
    return out;
  }
  out = at::sum(x.to(at::kFloat), dims, keep, at::kFloat).div_(count).to(type);
  return out;
}

Tensor power(const at::Scalar& base, const Tensor& exponent) {
  Tensor out = at::empty_like(exponent, exponent.options().dtype(at::result_type(base, exponent)));
  if (!base.equal(1.0)) at::pow_out(out, at::native::wrapped_scalar_tensor(base), exponent);
  return out;
}

// ---- losses: Loss.cpp

Tensor reduced_loss(const Tensor& a, const Tensor& b, int64_t reduction) {
  LossTensors loss = loss_tensors(a, b, reduction);
  // By whatever number, of which a tensor is made.
  if (reduction == at::Reduction::Mean && !scratch_is_measured()) loss.result.div_(1);
  return std::move(loss.result);
}
Tensor mse_loss(const Tensor& a, const Tensor& b, int64_t reduction) {
  return reduced_loss(a, b, reduction);
}
Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, int64_t reduction, double) {
  return reduced_loss(a, b, reduction);
}
Tensor mse_loss_backward(const Tensor&, const Tensor& x, const Tensor&, int64_t) {
  return at::zeros_like(x, at::MemoryFormat::Contiguous);
}

}  // namespace

void add_cpu_kernels(CpuKernels& kernels) {
  const auto add = adding_to(kernels);
  add("native_layer_norm", &layer_norm);
  add("native_layer_norm_backward", &layer_norm_backward);
  add("_scaled_dot_product_flash_attention_for_cpu", &flash);
  add("_scaled_dot_product_flash_attention_for_cpu_backward", &flash_backward);
  add("upsample_bilinear2d", &upsample_bilinear);
  add("_upsample_bicubic2d_aa_backward", &upsample_bicubic_aa_backward);
  add("embedding_dense_backward", &embedding_backward);
  add("scatter_add_", &scatter_add_to);
  add("index_add_", &index_add_to);
  add("where.self", &where);
  for (const std::string name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    for (const char* overload : {".Scalar", ".Scalar_out", "_.Scalar"}) {
      kernels.emplace("aten::" + name + overload,
                      CpuKernel{c10::KernelFunction::makeFromBoxedFunction<&compare_with_number>()});
    }
  }
  add("mean.dim", &mean);
  add("mse_loss", &mse_loss);
  add("smooth_l1_loss", &smooth_l1_loss);
  add("mse_loss_backward", &mse_loss_backward);
  add("pow.Scalar", &power);
}

}  // namespace dtk::planner
