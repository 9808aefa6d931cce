// The LLaMA decoder.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/models/fusable.h>
#include <dtk/models/llava.h>
#include <dtk/models/ops.h>

#include <utility>

#include "llava/parts.h"

namespace dtk::models {
namespace {

// x turned by its place: halves of a head are the two coordinates. x (N, H, T, d), cos and sin (T, d).
at::Tensor turned(const Seam& seam, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (seam.fuses("dtk::rotate")) return ops::rotate(x.transpose(1, 2), cos, sin, 1).transpose(1, 2);
  const Tensors halves = x.chunk(2, -1);
  at::Tensor across = at::cat({-halves[1], halves[0]}, -1);
  across = across * sin;
  at::Tensor along = x * cos;
  return along + across;
}

}  // namespace

at::Tensor Llava::embed(at::Tensor ids) const {
  return at::embedding(embedding_, ids);
}

// Angles of late places need more bits than bf16 has. Cast here, once for all layers: each would keep its
// own.
Tensors Llava::rotation(int64_t first, int64_t tokens, const at::Tensor& x) const {
  const int64_t width = *options_.text.hidden / *options_.text.heads;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(x.device());
  at::Tensor frequency = at::arange(0, width, 2, fp32) / static_cast<double>(width);
  frequency = at::pow(at::Scalar(options_.text.rope_theta), frequency).reciprocal();
  at::Tensor angle = at::outer(at::arange(first, first + tokens, fp32), frequency);  // (T, d/2)
  angle = at::cat({angle, angle}, 1);
  const at::Tensor cos = angle.cos(), sin = angle.sin();
  Tensors tables = pack(cos.to(x.scalar_type()), sin.to(x.scalar_type()));
  const at::ScalarType multiplied = as_multiplied(x.detach().slice(1, 0, 1)).scalar_type();
  if (multiplied == x.scalar_type()) return tables;
  tables.push_back(cos.to(multiplied));
  tables.push_back(sin.to(multiplied));
  return tables;
}

at::Tensor Llava::text_layer(size_t number, at::Tensor x, const Tensors& rotation, LlavaCache* cache,
                             bool training) const {
  const LlavaTextLayer& layer = layers_[number];
  const double eps = options_.text.norm_eps;
  at::Tensor h = rms_norm(seam, x, layer.norm1, eps);
  h = attention(number, std::move(h), rotation, cache, training);
  x = x + h;
  h.reset();
  h = rms_norm(seam, x, layer.norm2, eps);
  h = mlp(layer, std::move(h), training);
  return x + h;
}

at::Tensor Llava::attention(size_t number, at::Tensor x, const Tensors& rotation, LlavaCache* cache,
                            bool training) const {
  const LlavaTextLayer& layer = layers_[number];
  const int64_t heads = *options_.text.heads;
  at::Tensor q = heads_of(product(layer.q, x, training), heads),
             k = heads_of(product(layer.k, x, training), heads),
             v = heads_of(product(layer.v, x, training), heads);
  x.reset();
  const size_t first = rotation.back().scalar_type() == q.scalar_type() ? rotation.size() - 2 : 0;
  q = turned(seam, q, rotation[first], rotation[first + 1]);
  k = turned(seam, k, rotation[first], rotation[first + 1]);
  const int64_t seen = cache != nullptr ? cache->filled : 0, tokens = q.size(2);
  if (cache != nullptr) {
    // Recomputed, it would be written a second time, and what grows in it would stay alive for backward.
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "a cache of keys and values is for answers, where no gradient is taken");
    cache->keys[number].narrow(2, seen, tokens).copy_(k);
    cache->values[number].narrow(2, seen, tokens).copy_(v);
    k = cache->keys[number].narrow(2, 0, seen + tokens);
    v = cache->values[number].narrow(2, 0, seen + tokens);
  }
  // A single token may look at all before it; several behind others would need a mask, and never come.
  x = seam.attention(std::move(q), std::move(k), std::move(v), {.causal = seen == 0});
  x = seam.keep("attn_out", std::move(x));
  x = x.transpose(1, 2).flatten(2);
  x = product(layer.o, x, training);
  return seam.keep("o_out", std::move(x));
}

at::Tensor Llava::mlp(const LlavaTextLayer& layer, at::Tensor x, bool training) const {
  const auto fn = [&](Tensors&& in) {
    at::Tensor gate = product(layer.gate, in[0], training);
    at::Tensor up = product(layer.up, in[0], training);
    in.clear();
    at::Tensor h = silu_mul(seam, std::move(gate), up);
    up.reset();
    return pack(product(layer.down, h, training));
  };
  x = std::move(seam.rows("mlp", fn, pack(std::move(x)), {.dim = 1}).front());
  return seam.keep("down_out", std::move(x));
}

}  // namespace dtk::models
