#include "support/ops/operator_table.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <dtk/models/ops.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

namespace dtk::test {

using at::Tensor;

Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble);
}

std::pair<Tensor, Tensor> tables(const Tensor& x) {
  const auto table = [&](uint64_t seed) {
    return ((normal({x.size(1), x.size(3)}, seed) * 16).round() / 16).to(x.options());
  };
  return {table(10), table(11)};
}

Tensor as_heads(const Tensor& x) {
  return x.unflatten(2, {2, -1});
}

namespace {

// The composed forms; they compute in the type that they get.
Tensor composed_norm_modulate(const Tensors& in) {
  const Tensor &x = in[0], &shift = in[1], &scale = in[2];
  return at::layer_norm(x, {x.size(-1)}, {}, {}, kEps) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1);
}
Tensor composed_gated_add(const Tensors& in) {
  return in[0] + in[1].unsqueeze(1) * in[2];
}
Tensor composed_bias_gelu(const Tensors& in) {
  return at::gelu(in[0] + in[1], "tanh");
}

Tensor composed_rms_norm(const Tensors& in) {
  return in[0] * (in[0].pow(2).mean(-1, true) + kEps).rsqrt() * in[1];
}
Tensor composed_silu_mul(const Tensors& in) {
  return at::silu(in[0]) * in[1];
}

Tensor composed_rotate(const Tensors& in) {
  const Tensor x = as_heads(in[0]);
  const auto [cosine, sine] = tables(x);
  const Tensor halves = x.unflatten(3, {kParts, 2, -1});
  const Tensor across = at::stack({-halves.select(4, 1), halves.select(4, 0)}, 4).flatten(3);
  return x * cosine.unsqueeze(1) + across * sine.unsqueeze(1);
}

// What is measured is on any device.
Tensor values_of(const Tensor& got) {
  return got.cpu().to(at::kDouble);
}

void check_sizes(const Tensor& got, const Tensor& wanted) {
  TORCH_CHECK(got.sizes() == wanted.sizes(), "a result is ", got.sizes(), ", and ", wanted.sizes(),
              " is right");
}

}  // namespace

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all{
      {"norm_modulate",
       [](const Tensors& in) {
         return dtk::ops::norm_modulate(in[0], in[1], in[2], kEps, in[0].scalar_type());
       },
       composed_norm_modulate,
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 1) * 2 + 0.5, normal({n, d}, 2), normal({n, d}, 3)};
       }},
      {"gated_add", [](const Tensors& in) { return dtk::ops::gated_add(in[0], in[1], in[2]); },
       composed_gated_add,
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 4), normal({n, d}, 5), normal({n, t, d}, 6)};
       }},
      {"bias_gelu", [](const Tensors& in) { return dtk::ops::bias_gelu(in[0], in[1]); }, composed_bias_gelu,
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 7) * 2, normal({d}, 8)};
       }},
      {"rms_norm",
       [](const Tensors& in) { return dtk::ops::rms_norm(in[0], in[1], kEps, in[0].scalar_type()); },
       composed_rms_norm,
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 12) * 2 + 0.5, normal({d}, 13)};
       }},
      {"silu_mul", [](const Tensors& in) { return dtk::ops::silu_mul(in[0], in[1]); }, composed_silu_mul,
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 14) * 2, normal({n, t, d}, 15)};
       }},
      {"rotate",
       [](const Tensors& in) {
         const Tensor x = as_heads(in[0]);
         const auto [cosine, sine] = tables(x);
         return dtk::ops::rotate(x, cosine, sine, kParts);
       },
       composed_rotate,
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, 8 * d}, 16)};
       }}};
  return all;
}

// Layers whose input is recomputed in backward, and the two steps that they stand for.
const std::vector<Operator>& layers() {
  const auto linear = [](const Tensor& x, const Tensors& in) { return at::linear(x, in[3], in[4]); };
  static const std::vector<Operator> all{
      {"norm_modulate_linear",
       [](const Tensors& in) {
         return dtk::ops::norm_modulate_linear(in[0], in[1], in[2], kEps, in[3], in[4]);
       },
       [linear](const Tensors& in) {
         const bool wide = in[0].scalar_type() == at::kDouble;
         return linear(wide ? composed_norm_modulate(in)
                            : dtk::ops::norm_modulate(in[0], in[1], in[2], kEps, in[3].scalar_type()),
                       in);
       },
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 17) * 2 + 0.5, normal({n, d}, 18), normal({n, d}, 19),
                        normal({d + 2, d}, 20), normal({d + 2}, 21)};
       }},
      {"gated_add_norm_modulate_linear",
       [](const Tensors& in) {
         const auto [sum, y] =
             dtk::ops::gated_add_norm_modulate_linear(in[0], in[5], in[6], in[1], in[2], kEps, in[3], in[4]);
         return at::cat({sum.to(y.scalar_type()), y}, 2);
       },
       [linear](const Tensors& in) {
         const bool wide = in[0].scalar_type() == at::kDouble;
         const Tensor sum =
             wide ? composed_gated_add({in[0], in[5], in[6]}) : dtk::ops::gated_add(in[0], in[5], in[6]);
         const Tensor h = wide ? composed_norm_modulate({sum, in[1], in[2]})
                               : dtk::ops::norm_modulate(sum, in[1], in[2], kEps, in[3].scalar_type());
         const Tensor y = linear(h, in);
         return at::cat({sum.to(y.scalar_type()), y}, 2);
       },
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 17),  normal({n, d}, 18),  normal({n, d}, 19),
                        normal({d + 2, d}, 20), normal({d + 2}, 21), normal({n, d}, 22),
                        normal({n, t, d}, 23)};
       }},
      {"bias_gelu_linear",
       [](const Tensors& in) { return dtk::ops::bias_gelu_linear(in[0], in[1], in[3], in[4]); },
       [linear](const Tensors& in) {
         const bool wide = in[0].scalar_type() == at::kDouble;
         return linear(wide ? composed_bias_gelu(in) : dtk::ops::bias_gelu(in[0], in[1]), in);
       },
       [](int64_t n, int64_t t, int64_t d) {
         return Tensors{normal({n, t, d}, 22) * 2, normal({d}, 23), normal({1}, 24), normal({d + 2, d}, 25),
                        normal({d + 2}, 26)};
       }}};
  return all;
}

const Operator& operator_of(const std::string& name) {
  static const std::vector<Operator> all = operators_and_layers();
  return *std::find_if(all.begin(), all.end(), [&](const Operator& one) { return one.name == name; });
}

std::vector<Operator> operators_and_layers() {
  std::vector<Operator> all = operators();
  all.insert(all.end(), layers().begin(), layers().end());
  return all;
}

Tensors with_gradients(const std::function<Tensor(const Tensors&)>& fn, const Tensors& inputs,
                       std::optional<at::ScalarType> rounded) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_(true));
  const Tensor y = fn(leaves);
  Tensors all{y.detach()};
  if (y.numel() == 0) return all;
  const Tensor dy = normal(y.sizes(), 9).to(rounded.value_or(y.scalar_type())).to(y.options());
  const auto gradients = torch::autograd::grad({y}, leaves, {dy}, {}, false, /*allow_unused=*/true);
  for (const Tensor& gradient : gradients) all.push_back(gradient);
  return all;
}

Tensors converted(const Tensors& tensors, at::ScalarType type) {
  Tensors all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.to(type));
  return all;
}

double distance(const Tensor& got, const Tensor& wanted) {
  check_sizes(got, wanted);
  if (got.numel() == 0) return 0;
  const double magnitude = wanted.abs().max().item<double>();
  return (values_of(got) - wanted).abs().max().item<double>() / std::max(magnitude, 1e-300);
}

double half_ulp(at::ScalarType type) {
  return type == at::kFloat ? 0x1p-24 : type == at::kHalf ? 0x1p-11 : 0x1p-8;
}

double in_roundings(const Tensor& got, const Tensor& wanted) {
  check_sizes(got, wanted);
  const Tensor magnitude = wanted.abs();
  const Tensor allowed = magnitude * half_ulp(got.scalar_type()) + magnitude.max() * 2e-6;
  return ((values_of(got) - wanted).abs() / allowed).max().item<double>();
}

const std::vector<std::array<int64_t, 3>> kShapes{{1, 1, 1},     {3, 5, 4},    {2, 65, 33},
                                                  {1, 130, 257}, {3, 64, 384}, {2, 256, 72},
                                                  {2, 3, 16},    {1, 7, 1153}, {2, 129, 31}};

}  // namespace dtk::test
