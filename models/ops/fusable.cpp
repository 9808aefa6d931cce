#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <dtk/models/fusable.h>
#include <dtk/models/ops.h>

#include <utility>

#include "ops/linear_recomputed.h"

namespace dtk::models {

at::Tensor norm_modulate(const Seam& seam, const at::Tensor& x, const at::Tensor& shift,
                         const at::Tensor& scale, double eps) {
  if (seam.fuses("dtk::norm_modulate")) return ops::norm_modulate(x, shift, scale, eps, ops::product_type(x));
  at::Tensor h = at::layer_norm(x, {x.size(-1)}, {}, {}, eps);
  at::Tensor factor = 1 + scale.unsqueeze(1);
  h = h * factor;
  factor.reset();
  return h + shift.unsqueeze(1);
}

at::Tensor norm_modulate_linear(const Seam& seam, const at::Tensor& x, const at::Tensor& shift,
                                const at::Tensor& scale, double eps, const Linear& linear) {
  if (seam.fuses("dtk::norm_modulate"))
    return ops::norm_modulate_linear(x, shift, scale, eps, linear.weight, linear.bias);
  return linear(norm_modulate(seam, x, shift, scale, eps));
}

at::Tensor gated_add(const Seam& seam, const at::Tensor& x, const at::Tensor& gate, at::Tensor branch) {
  if (seam.fuses("dtk::gated_add")) return ops::gated_add(x, gate, branch);
  branch = gate.unsqueeze(1) * branch;
  return x + branch;
}

at::Tensor mlp(const Seam& seam, const Linear& fc1, const Linear& fc2, at::Tensor x, double dropout) {
  if (seam.fuses("dtk::bias_gelu")) {
    x = seam.keep("fc1_out", at::linear(x, fc1.weight));
    if (dropout == 0) return ops::bias_gelu_linear(x, fc1.bias, fc2.weight, fc2.bias);
    x = ops::bias_gelu(x, fc1.bias);
  } else {
    x = seam.keep("fc1_out", fc1(x));
    x = at::gelu(x, "tanh");
  }
  if (dropout > 0) x = at::dropout(x, dropout, /*train=*/true);
  return fc2(x);
}

std::pair<at::Tensor, at::Tensor> gated_add_mlp(const Seam& seam, at::Tensor x, const at::Tensor& gate,
                                                at::Tensor branch, const at::Tensor& shift,
                                                const at::Tensor& scale, double eps, const Linear& fc1,
                                                const Linear& fc2, double dropout) {
  const bool fuses = dropout == 0 && seam.fuses("dtk::gated_add") && seam.fuses("dtk::norm_modulate") &&
                     seam.fuses("dtk::bias_gelu");
  if (fuses) {
    auto both = ops::gated_add_norm_modulate_linear(x, gate, branch, shift, scale, eps, fc1.weight, {});
    x.reset();
    branch.reset();
    at::Tensor h = seam.keep("fc1_out", std::move(both.second));
    h = ops::bias_gelu_linear(h, fc1.bias, fc2.weight, fc2.bias);
    return {std::move(both.first), seam.keep("fc2_out", std::move(h))};
  }
  const auto fn = [&](Tensors&& in) { return pack(mlp(seam, fc1, fc2, std::move(in[0]), dropout)); };
  x = gated_add(seam, x, gate, std::move(branch));
  at::Tensor h = norm_modulate(seam, x, shift, scale, eps);
  h = std::move(seam.rows("mlp", fn, pack(std::move(h)), {.dim = 1}).front());
  return {std::move(x), seam.keep("fc2_out", std::move(h))};
}

at::Tensor rms_norm(const Seam& seam, const at::Tensor& x, const at::Tensor& weight, double eps) {
  const bool casts = at::autocast::is_autocast_enabled(x.device().type());
  // Of narrow tokens and a wide weight LibTorch makes wide ones, which no kernel does.
  const bool widens = !casts && weight.scalar_type() != x.scalar_type();
  if (!widens && seam.fuses("dtk::rms_norm")) return ops::rms_norm(x, weight, eps, ops::product_type(x));
  at::Tensor h = x.to(at::kFloat);
  at::Tensor factor = h.pow(2).mean(-1, /*keepdim=*/true);
  factor = factor + eps;
  factor = factor.rsqrt();
  h = h * factor;
  h = h.to(x.scalar_type());
  return weight * h;
}

at::Tensor silu_mul(const Seam& seam, at::Tensor gate, const at::Tensor& up) {
  if (seam.fuses("dtk::silu_mul")) return ops::silu_mul(gate, up);
  gate = at::silu(gate);
  return gate * up;
}

}  // namespace dtk::models
