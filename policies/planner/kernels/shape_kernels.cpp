#include "kernels/shape_kernels.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <dtk/policies/internal/scoped.h>

#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "cost/kernel_needs.h"
#include "kernels/attention_choice.h"
#include "kernels/kernel_results.h"

namespace dtk::planner {
namespace {

using at::Tensor;

// ---- normalisation: aten/src/ATen/native/cuda/layer_norm_kernel.cu

Three cuda_layer_norm(const Tensor& input, at::IntArrayRef normalized, const OptionalTensor&,
                      const OptionalTensor&, double) {
  const Tensor x = input.contiguous();
  return layer_norm_results(x, normalized, x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

Three cuda_layer_norm_backward(const Tensor& grad, const Tensor& input, at::IntArrayRef, const Tensor&,
                               const Tensor&, const OptionalTensor& weight, const OptionalTensor& bias,
                               Mask mask) {
  // The sums over rows are made in parts, as many as the device has room for.
  if (mask[1] || mask[2]) KernelNeeds::instance().unknown_scratch("aten::native_layer_norm_backward");
  const Tensor dy = grad.contiguous(), x = input.contiguous();
  return layer_norm_gradients(x, weight, bias, mask);
}

// ---- group normalisation: aten/src/ATen/native/group_norm.cpp, one source for both devices

Three group_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor&, c10::SymInt batch,
                 c10::SymInt, c10::SymInt, int64_t groups, double) {
  const bool mixed = weight && weight->defined() && weight->scalar_type() != x.scalar_type();
  const at::ScalarType type = mixed ? weight->scalar_type() : x.scalar_type();
  const std::array<int64_t, 2> statistics{batch.expect_int(), groups};
  return {at::empty_like(x, x.is_cpu() ? x.suggest_memory_format() : at::MemoryFormat::Contiguous),
          make(x, statistics, type), make(x, statistics, type)};
}

Three group_norm_backward(const Tensor&, const Tensor& x, const Tensor&, const Tensor&,
                          const OptionalTensor& weight, c10::SymInt, c10::SymInt channels, c10::SymInt,
                          int64_t, Mask mask) {
  const auto of_channels = [&](bool wanted) {
    if (!wanted) return Tensor();
    return weight && weight->defined() ? at::empty_like(*weight)
                                       : make(x, {channels.expect_int()}, x.scalar_type());
  };
  const auto format = x.is_cpu() ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
  return {mask[0] ? at::empty_like(x, format) : Tensor(), of_channels(mask[1]), of_channels(mask[2])};
}

// ---- dropout: a mask of one byte an element, on CUDA only

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double, std::optional<bool>) {
  return {at::empty_like(x), at::empty_like(x, x.options().dtype(at::kBool))};
}
Tensor dropout_backward(const Tensor& grad, const Tensor&, double) {
  return at::empty_like(grad);
}

// ---- attention: transformers/cuda/attention.cu, attention_backward.cu

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> cuda_flash(
    const Tensor& q, const Tensor& k, const Tensor& v, double, bool, bool, std::optional<double>) {
  return {by_rows(q, v.size(3)),
          make(q, {q.size(0), q.size(1), q.size(2)}, at::kFloat),
          Tensor(),
          Tensor(),
          q.size(2),
          k.size(2),
          make(q, {2}, at::kUInt64),
          make(q, {}, at::kUInt64),
          make(q, {0}, q.scalar_type())};
}

int64_t up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What a backward call takes for itself, while it lives.
class AttentionScratch : policies::NotCopied {
 public:
  explicit AttentionScratch(const Tensor& like) : like_(like) {}
  ~AttentionScratch() { KernelNeeds::instance().attention_scratch(bytes_); }
  void take(at::IntArrayRef sizes) {
    if (!KernelNeeds::instance().options().attention_scratch) return;
    tensors_.push_back(make(like_, sizes, at::kFloat));
    bytes_ += static_cast<int64_t>(tensors_.back().nbytes());
  }

 private:
  const Tensor& like_;
  std::vector<Tensor> tensors_;
  int64_t bytes_ = 0;
};

// flash_attn/flash_api.cpp, mha_bwd(), where algorithms need not be deterministic.
Three cuda_flash_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
                          const Tensor&, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double, bool,
                          const Tensor&, const Tensor&, std::optional<double>) {
  Three gradients{by_rows(q, q.size(3)), by_rows(k, k.size(3)), by_rows(v, v.size(3))};
  const int64_t rows = up_to(q.size(2), 128), width = up_to(q.size(3), q.size(3) <= 128 ? 32 : 64);
  AttentionScratch scratch(q);
  scratch.take({q.size(0), q.size(1), rows});
  scratch.take({q.size(0), rows, q.size(1), width});
  return gradients;
}

// aten/src/ATen/native/cudnn/MHA.cpp. The workspaces are those of cuDNN's graphs, as an H200 took them with
// each of eight shapes.
constexpr int64_t kCudnnWorkspace = 256;

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> cudnn_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor&, bool with_logsumexp, double,
    bool, bool, std::optional<double>) {
  AttentionScratch scratch(q);
  scratch.take({kCudnnWorkspace / 4});
  return {by_rows(q, v.size(3)),
          with_logsumexp ? make(q, {q.size(0), q.size(1), q.size(2), 1}, at::kFloat) : Tensor(),
          Tensor(),
          Tensor(),
          q.size(2),
          k.size(2),
          make(q, {}, at::kLong),
          make(q, {}, at::kLong),
          Tensor()};
}

Three cudnn_attention_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor& mask,
                               const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout,
                               bool causal, std::optional<double>) {
  if (mask.defined() || dropout > 0 || causal || q.size(2) != k.size(2))
    KernelNeeds::instance().unknown_scratch("aten::_scaled_dot_product_cudnn_attention_backward");
  Three gradients{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  AttentionScratch scratch(q);
  const int64_t rows = q.size(0) * q.size(1) * q.size(2);
  scratch.take({rows * (q.size(3) + 1) + kCudnnWorkspace / 4});  // dq and row sums
  return gradients;
}

Four efficient(const Tensor& q, const Tensor&, const Tensor& v, const OptionalTensor&, bool with_logsumexp,
               double, bool, std::optional<double>) {
  constexpr int64_t kAlignment = 32;  // of the rows of logsumexp
  const int64_t rows = up_to(q.size(2), kAlignment);
  return {by_rows(q, v.size(3)), make(q, {q.size(0), q.size(1), with_logsumexp ? rows : 0}, at::kFloat),
          make(q, {}, at::kLong), make(q, {}, at::kLong)};
}

Four efficient_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
                        const Tensor&, const Tensor&, const Tensor&, const Tensor&, double,
                        std::array<bool, 4> mask, bool, std::optional<double>) {
  Four gradients{by_rows(q, q.size(3)), by_rows(k, k.size(3)), by_rows(v, v.size(3)),
                 mask[3] && bias.defined() ? at::empty_like(bias) : Tensor()};
  AttentionScratch scratch(q);
  scratch.take({q.size(0), q.size(1), q.size(2)});
  // In half precision the kernel sums the rows itself, and the gradients in buffers whose blocks depend on
  // the device.
  if (q.scalar_type() != at::kFloat)
    KernelNeeds::instance().unknown_scratch("aten::_scaled_dot_product_efficient_attention_backward");
  if (q.scalar_type() == at::kFloat) {
    scratch.take({q.size(0), q.size(2), q.size(1)});
    scratch.take({q.size(0), q.size(2), q.size(1), v.size(3)});
  }
  return gradients;
}

// ---- gated linear unit

Tensor glu_backward(const Tensor&, const Tensor& x, int64_t) {
  return make(x, x.sizes(), x.scalar_type());
}

// ---- gathers

Tensor cuda_embedding_backward(const Tensor& grad, const Tensor&, c10::SymInt rows, c10::SymInt, bool) {
  // Beyond some thousand indices they are sorted, and rows summed in parts.
  KernelNeeds::instance().unknown_scratch("aten::embedding_dense_backward");
  return make(grad, {rows.expect_int(), grad.size(-1)}, grad.scalar_type());
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  at::DimVector sizes(x.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim < 0 ? dim + x.dim() : dim)] = index.numel();
  return make(x, sizes, x.scalar_type());
}

Tensor cuda_where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), a.sizes()), b.sizes());
  return make(condition, sizes, at::result_type(a, b));
}

// ---- repetition: TensorShape.cpp, which reads the order of dimensions from tensors of CPU memory

Tensor repeat(const Tensor& x, c10::SymIntArrayRef repeats) {
  const auto dims = static_cast<int64_t>(repeats.size());
  std::vector<int64_t> sizes;
  for (const c10::SymInt& times : repeats) sizes.push_back(times.expect_int());
  TORCH_CHECK(dims >= x.dim(), "repeat: fewer numbers of times than dimensions");
  bool none = false;
  for (int64_t i = 0; i < dims; ++i) {
    none = none || sizes[static_cast<size_t>(i)] == 0;
    if (i >= dims - x.dim()) sizes[static_cast<size_t>(i)] *= x.size(i - (dims - x.dim()));
  }
  const Tensor out = make(x, sizes, x.scalar_type());
  if (none) return out;
  Tensor first = at::arange(dims, at::kLong), second = first + dims;
  const Tensor order = at::stack({std::move(first), std::move(second)}, 1).flatten();
  return out;
}

// Element by element; LibTorch's functional form calls it with an empty result.
Tensor& pointwise_out(const Tensor& x, Tensor& out) {
  out.resize_(x.sizes());
  return out;
}

Tensor& pointwise_pair_out(const Tensor& a, const Tensor& b, Tensor& out) {
  out.resize_(at::infer_size(a.sizes(), b.sizes()));
  return out;
}

Tensor relu(const Tensor& x) {
  return at::empty_like(x);
}

// ---- losses

Tensor cuda_mse_loss(const Tensor& a, const Tensor& b, int64_t reduction) {
  return loss_tensors(a, b, reduction).result;
}
Tensor cuda_smooth_l1_loss(const Tensor& a, const Tensor& b, int64_t reduction, double) {
  return loss_tensors(a, b, reduction).result;
}

Tensor cuda_mse_loss_backward(const Tensor&, const Tensor& x, const Tensor&, int64_t) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

// ---- convolution in two dimensions

int64_t at_or_only(at::IntArrayRef values, size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

Tensor convolution(const Tensor& x, const Tensor& weight, const OptionalTensor&, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef,
                   int64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(!transposed && x.dim() == 4,
                              "the simulated device knows convolution in two dimensions only");
  at::DimVector sizes{x.size(0), weight.size(0)};
  for (const size_t i : {0, 1}) {
    const int64_t reach = at_or_only(dilation, i) * (weight.size(2 + static_cast<int64_t>(i)) - 1) + 1;
    const int64_t padded = x.size(2 + static_cast<int64_t>(i)) + 2 * at_or_only(padding, i);
    sizes.push_back((padded - reach) / at_or_only(stride, i) + 1);
  }
  KernelNeeds::instance().convolution(x.sizes(), weight.sizes());
  return make(x, sizes, x.scalar_type());
}

Three convolution_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, at::OptionalIntArrayRef,
                           at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool, at::IntArrayRef, int64_t,
                           Mask mask) {
  return {mask[0] ? at::empty_like(x) : Tensor(), mask[1] ? at::empty_like(weight) : Tensor(),
          mask[2] ? make(grad, {weight.size(0)}, grad.scalar_type()) : Tensor()};
}

template <class Register>
void register_common(Register&& add) {
  add("_fused_sdp_choice", &attention_choice);
  add("glu_backward", &glu_backward);
  add("native_group_norm", &group_norm);
  add("native_group_norm_backward", &group_norm_backward);
  add("index_select", &index_select);
  add("repeat", &repeat);
  for (const char* name : {"abs.out", "logical_not.out"}) add(name, &pointwise_out);
  for (const char* name : {"logical_and.out", "logical_or.out", "logical_xor.out"})
    add(name, &pointwise_pair_out);
}

}  // namespace

CpuKernels cpu_shape_kernels() {
  CpuKernels kernels;
  const auto add = adding_to(kernels);
  register_common(add);
  add_cpu_kernels(kernels);
  add_cpu_convolutions(kernels);
  add_cpu_batch_norms(kernels);
  return kernels;
}

void register_cuda_shape_kernels(torch::Library& aten) {
  const auto add = [&](const char* name, auto* kernel) { aten.impl(name, kernel); };
  register_common(add);
  add("native_layer_norm", &cuda_layer_norm);
  add("native_layer_norm_backward", &cuda_layer_norm_backward);
  add("embedding_dense_backward", &cuda_embedding_backward);
  add("where.self", &cuda_where);
  add("relu", &relu);
  add("mse_loss", &cuda_mse_loss);
  add("smooth_l1_loss", &cuda_smooth_l1_loss);
  add("mse_loss_backward", &cuda_mse_loss_backward);
  add("native_dropout", &dropout);
  add("native_dropout_backward", &dropout_backward);
  add("_scaled_dot_product_flash_attention", &cuda_flash);
  add("_scaled_dot_product_flash_attention_backward", &cuda_flash_backward);
  add("_scaled_dot_product_cudnn_attention", &cudnn_attention);
  add("_scaled_dot_product_cudnn_attention_backward", &cudnn_attention_backward);
  add("_scaled_dot_product_efficient_attention", &efficient);
  add("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
  add("convolution", &convolution);
  add("convolution_backward", &convolution_backward);
  register_cuda_batch_norms(aten);
}

}  // namespace dtk::planner
