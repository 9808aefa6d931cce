// libdtk_cuda_kernels.so: the CUDA kernels of operators whose schemas the programs have.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>
#include <torch/version.h>

#include <memory>
#include <tuple>

#include "bias_gelu.h"
#include "gated_add.h"
#include "norm_modulate.h"
#include "rms_norm.h"
#include "rotate.h"
#include "silu_mul.h"

namespace dtk::models::cuda {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// libtorch_cuda answers a call that there is for any device: nothing of it is linked. On the CPU there are
// tests only.
Stream stream_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return static_cast<Stream>(guard.getStreamNativeHandle(guard.getStream(tensor.device())));
}

Type type_of(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
              "dtk: the CUDA kernels take Float, BFloat16 and Half, not ", type);
  return type == at::kFloat ? Type::fp32 : type == at::kBFloat16 ? Type::bf16 : Type::fp16;
}

Rows rows_of(const at::Tensor& table) {
  return {table.const_data_ptr(), table.stride(0)};
}

// Results are written by kernels unless there is no row to sum.
at::Tensor empty_sums(const at::Tensor& like, at::IntArrayRef sizes, int64_t rows) {
  const at::TensorOptions options = like.options();
  return rows == 0 ? at::zeros(sizes, options) : at::empty(sizes, options);
}

// Made by the program, which may be of another build.
void check_partial(const at::Tensor& partial, int64_t numbers, const char* name) {
  TORCH_CHECK(partial.numel() == numbers && partial.scalar_type() == at::kFloat && partial.is_contiguous(),
              "dtk::", name, ": partial is ", partial.scalar_type(), " ", partial.sizes(),
              "; allowed: ", numbers, " numbers in Float");
}

template <class... Operands>
void check(int error, const char* name, const Operands&... operands) {
  if (error == 0) return;
  std::string shapes;
  ((shapes += c10::str(shapes.empty() ? "" : ", ", operands.scalar_type(), " ", operands.sizes(), " strides ",
                       operands.strides())),
   ...);
  TORCH_CHECK(false, "dtk::", name, " of ", shapes, ": CUDA error ", error);
}

NormModulate shape_of(const at::Tensor& x, const at::Tensor& y, const at::Tensor& scale) {
  return {x.size(0), x.size(1), x.size(2), type_of(x), type_of(y), type_of(scale)};
}

Triple norm_forward_on_cuda(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale, double eps,
                            at::ScalarType type) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options().dtype(type));
  at::Tensor mean = at::empty({x.size(0), x.size(1)}, x.options().dtype(at::kFloat));
  at::Tensor rstd = at::empty_like(mean);
  check(norm_modulate_forward(shape_of(x, y, scale), x.const_data_ptr(), rows_of(shift), rows_of(scale),
                              static_cast<float>(eps), y.mutable_data_ptr(), mean.mutable_data_ptr<float>(),
                              rstd.mutable_data_ptr<float>(), stream_of(x)),
        "norm_modulate", x, shift, scale);
  return {std::move(y), std::move(mean), std::move(rstd)};
}

Triple norm_backward_on_cuda(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                             const at::Tensor& rstd, const at::Tensor& scale, const at::Tensor& partial) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor dx = at::empty(x.sizes(), x.options());
  check_partial(partial, x.size(0) * chunks(x.size(1)) * 2 * x.size(2), "norm_modulate_backward");
  at::Tensor dshift = empty_sums(scale, scale.sizes(), x.size(1));
  at::Tensor dscale = empty_sums(scale, scale.sizes(), x.size(1));
  check(norm_modulate_backward(shape_of(x, dy, scale), dy.const_data_ptr(), x.const_data_ptr(),
                               mean.const_data_ptr<float>(), rstd.const_data_ptr<float>(), rows_of(scale),
                               partial.mutable_data_ptr<float>(), dx.mutable_data_ptr(),
                               dshift.mutable_data_ptr(), dscale.mutable_data_ptr(), stream_of(x)),
        "norm_modulate_backward", dy, x, scale, partial);
  return {std::move(dx), std::move(dshift), std::move(dscale)};
}

GatedAdd gated_shape_of(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& branch) {
  return {x.size(0), x.size(1), x.size(2), type_of(x), type_of(branch), type_of(gate)};
}

at::Tensor gated_add_on_cuda(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& branch) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  check(gated_add_forward(gated_shape_of(x, gate, branch), x.const_data_ptr(), rows_of(gate),
                          branch.const_data_ptr(), y.mutable_data_ptr(), stream_of(x)),
        "gated_add", x, gate, branch);
  return y;
}

Pair gated_backward_on_cuda(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& branch,
                            const at::Tensor& partial) {
  const c10::OptionalDeviceGuard guard(dy.device());
  check_partial(partial, dy.size(0) * chunks(dy.size(1)) * dy.size(2), "gated_add_backward");
  at::Tensor dgate = empty_sums(gate, gate.sizes(), dy.size(1));
  at::Tensor dbranch = at::empty(branch.sizes(), branch.options());
  check(gated_add_backward(gated_shape_of(dy, gate, branch), dy.const_data_ptr(), rows_of(gate),
                           branch.const_data_ptr(), partial.mutable_data_ptr<float>(),
                           dgate.mutable_data_ptr(), dbranch.mutable_data_ptr(), stream_of(dy)),
        "gated_add_backward", dy, gate, branch, partial);
  return {std::move(dgate), std::move(dbranch)};
}

BiasGelu gelu_shape_of(const at::Tensor& x, const at::Tensor& bias) {
  return {x.numel() / x.size(-1), x.size(-1), type_of(x), type_of(bias)};
}

at::Tensor bias_gelu_on_cuda(const at::Tensor& x, const at::Tensor& bias) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  check(bias_gelu_forward(gelu_shape_of(x, bias), x.const_data_ptr(), bias.const_data_ptr(),
                          y.mutable_data_ptr(), stream_of(x)),
        "bias_gelu", x, bias);
  return y;
}

at::Tensor fill_gelu_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                               const at::Tensor& partial, const at::Tensor& dx, const char* name) {
  check_partial(partial, chunks(x.numel() / x.size(-1)) * x.size(-1), name);
  at::Tensor dbias = empty_sums(bias, bias.sizes(), x.numel());
  check(bias_gelu_backward(gelu_shape_of(x, bias), dy.const_data_ptr(), x.const_data_ptr(),
                           bias.const_data_ptr(), partial.mutable_data_ptr<float>(), dx.mutable_data_ptr(),
                           dbias.mutable_data_ptr(), stream_of(x)),
        name, dy, x, bias, partial);
  return dbias;
}

Pair gelu_backward_on_cuda(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                           const at::Tensor& partial) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor dx = at::empty(x.sizes(), x.options());
  at::Tensor dbias = fill_gelu_gradients(dy, x, bias, partial, dx, "bias_gelu_backward");
  return {std::move(dx), std::move(dbias)};
}

at::Tensor gelu_backward_in_place_on_cuda(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                          const at::Tensor& partial) {
  const c10::OptionalDeviceGuard guard(x.device());
  return fill_gelu_gradients(dy, x, bias, partial, dy, "bias_gelu_backward_");
}

RmsNorm rms_shape_of(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight) {
  return {x.numel() / x.size(-1), x.size(-1), type_of(x), type_of(y), type_of(weight)};
}

Pair rms_norm_on_cuda(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType type) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options().dtype(type));
  at::Tensor rstd = at::empty(x.sizes().slice(0, x.dim() - 1), x.options().dtype(at::kFloat));
  check(rms_norm_forward(rms_shape_of(x, y, weight), x.const_data_ptr(), weight.const_data_ptr(),
                         static_cast<float>(eps), y.mutable_data_ptr(), rstd.mutable_data_ptr<float>(),
                         stream_of(x)),
        "rms_norm", x, weight);
  return {std::move(y), std::move(rstd)};
}

// Without partial sums the weight's gradient is not wanted: it stays undefined.
Pair rms_backward_on_cuda(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                          const at::Tensor& weight, const at::Tensor& partial) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor dx = at::empty(x.sizes(), x.options()), dweight;
  if (partial.numel() != 0) {
    check_partial(partial, chunks(x.numel() / x.size(-1)) * x.size(-1), "rms_norm_backward");
    dweight = at::empty(weight.sizes(), weight.options());
  }
  check(rms_norm_backward(rms_shape_of(x, dy, weight), dy.const_data_ptr(), x.const_data_ptr(),
                          rstd.const_data_ptr<float>(), weight.const_data_ptr(),
                          dweight.defined() ? partial.mutable_data_ptr<float>() : nullptr,
                          dx.mutable_data_ptr(), dweight.defined() ? dweight.mutable_data_ptr() : nullptr,
                          stream_of(x)),
        "rms_norm_backward", dy, x, weight, partial);
  return {std::move(dx), std::move(dweight)};
}

at::Tensor silu_mul_on_cuda(const at::Tensor& gate, const at::Tensor& up) {
  const c10::OptionalDeviceGuard guard(gate.device());
  at::Tensor y = at::empty(gate.sizes(), gate.options());
  check(silu_mul_forward({gate.numel(), type_of(gate)}, gate.const_data_ptr(), up.const_data_ptr(),
                         y.mutable_data_ptr(), stream_of(gate)),
        "silu_mul", gate, up);
  return y;
}

Pair silu_backward_on_cuda(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
  const c10::OptionalDeviceGuard guard(gate.device());
  at::Tensor dgate = at::empty(gate.sizes(), gate.options());
  at::Tensor dup = at::empty(gate.sizes(), gate.options());
  check(silu_mul_backward({gate.numel(), type_of(gate)}, dy.const_data_ptr(), gate.const_data_ptr(),
                          up.const_data_ptr(), dgate.mutable_data_ptr(), dup.mutable_data_ptr(),
                          stream_of(gate)),
        "silu_mul_backward", dy, gate, up);
  return {std::move(dgate), std::move(dup)};
}

Rotate rotate_shape_of(const at::Tensor& x, const at::Tensor& cosine, int64_t parts) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), parts, type_of(x), type_of(cosine)};
}

Heads heads_of(const at::Tensor& table) {
  return {table.const_data_ptr(), table.stride(0), table.stride(1), table.stride(2)};
}

at::Tensor rotate_on_cuda(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                          int64_t parts) {
  const c10::OptionalDeviceGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  check(rotate_forward(rotate_shape_of(x, cosine, parts), heads_of(x), cosine.const_data_ptr(),
                       sine.const_data_ptr(), y.mutable_data_ptr(), stream_of(x)),
        "rotate", x, cosine, sine);
  return y;
}

at::Tensor rotate_backward_on_cuda(const at::Tensor& dy, const at::Tensor& cosine, const at::Tensor& sine,
                                   int64_t parts) {
  const c10::OptionalDeviceGuard guard(dy.device());
  at::Tensor dx = at::empty(dy.sizes(), dy.options());
  check(rotate_backward(rotate_shape_of(dy, cosine, parts), heads_of(dy), cosine.const_data_ptr(),
                        sine.const_data_ptr(), dx.mutable_data_ptr(), stream_of(dy)),
        "rotate_backward", dy, cosine, sine);
  return dx;
}

}  // namespace
}  // namespace dtk::models::cuda

// What dtk::ops::open_cuda_kernels() calls, once it knows that both are of one LibTorch.
#define DTK_EXPORTED extern "C" __attribute__((visibility("default")))

DTK_EXPORTED const char* dtk_cuda_kernels_torch_version() {
  return TORCH_VERSION;
}

DTK_EXPORTED void dtk_cuda_kernels_register() {
  using namespace dtk::models::cuda;
  // Kept for good once all are taken; else none stays.
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "dtk", c10::DispatchKey::CUDA,
                                                  __FILE__, __LINE__);
  library->impl("norm_modulate", &norm_forward_on_cuda);
  library->impl("norm_modulate_backward", &norm_backward_on_cuda);
  library->impl("gated_add", &gated_add_on_cuda);
  library->impl("gated_add_backward", &gated_backward_on_cuda);
  library->impl("bias_gelu", &bias_gelu_on_cuda);
  library->impl("bias_gelu_backward", &gelu_backward_on_cuda);
  library->impl("bias_gelu_backward_", &gelu_backward_in_place_on_cuda);
  library->impl("rms_norm", &rms_norm_on_cuda);
  library->impl("rms_norm_backward", &rms_backward_on_cuda);
  library->impl("silu_mul", &silu_mul_on_cuda);
  library->impl("silu_mul_backward", &silu_backward_on_cuda);
  library->impl("rotate", &rotate_on_cuda);
  library->impl("rotate_backward", &rotate_backward_on_cuda);
  library.release();
}
