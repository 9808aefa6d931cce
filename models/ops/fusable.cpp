#include <ATen/autocast_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <dtk/models/fusable.h>
#include <dtk/models/ops.h>

namespace dtk::models {
namespace {

// Of what a product reads.
at::ScalarType product_type(const at::Tensor& x) {
  const c10::DeviceType device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : x.scalar_type();
}

}  // namespace

at::Tensor norm_modulate(const Seam& seam, const at::Tensor& x, const at::Tensor& shift,
                         const at::Tensor& scale, double eps) {
  if (seam.fuses("dtk::norm_modulate")) return ops::norm_modulate(x, shift, scale, eps, product_type(x));
  at::Tensor h = at::layer_norm(x, {x.size(-1)}, {}, {}, eps);
  at::Tensor factor = 1 + scale.unsqueeze(1);
  h = h * factor;
  factor.reset();
  return h + shift.unsqueeze(1);
}

at::Tensor gated_add(const Seam& seam, const at::Tensor& x, const at::Tensor& gate, at::Tensor branch) {
  if (seam.fuses("dtk::gated_add")) return ops::gated_add(x, gate, branch);
  branch = gate.unsqueeze(1) * branch;
  return x + branch;
}

at::Tensor mlp_activation(const Seam& seam, const Linear& fc1, at::Tensor x) {
  if (seam.fuses("dtk::bias_gelu")) {
    x = seam.keep("fc1_out", at::linear(x, fc1.weight));
    return ops::bias_gelu(x, fc1.bias);
  }
  x = seam.keep("fc1_out", fc1(x));
  x = at::gelu(x, "tanh");
  return x;
}

}  // namespace dtk::models
