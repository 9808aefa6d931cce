// The LLaMA decoder.
#include <ATen/ATen.h>
#include <dtk/models/llava.h>

#include <utility>

#include "llava/parts.h"

namespace dtk::models {
namespace {

// x turned by its place: halves of a head are the two coordinates. x (N, H, T, d), cos and sin (T, d).
at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
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

// In fp32, then as `like` is: angles of late places need more bits than bf16 has.
Llava::Rotation Llava::rotation(int64_t first, int64_t tokens, const at::Tensor& like) const {
  const int64_t width = *options_.text.hidden / *options_.text.heads;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(like.device());
  at::Tensor frequency = at::arange(0, width, 2, fp32) / static_cast<double>(width);
  frequency = at::pow(at::Scalar(options_.text.rope_theta), frequency).reciprocal();
  at::Tensor angle = at::outer(at::arange(first, first + tokens, fp32), frequency);  // (T, d/2)
  angle = at::cat({angle, angle}, 1);
  return {angle.cos().to(like.scalar_type()), angle.sin().to(like.scalar_type())};
}

at::Tensor Llava::text_layer(size_t number, at::Tensor x, const Rotation& rotation, LlavaCache* cache) const {
  const LlavaTextLayer& layer = layers_[number];
  const double eps = options_.text.norm_eps;
  at::Tensor h = rms_norm(x, layer.norm1, eps);
  h = attention(number, std::move(h), rotation, cache);
  x = x + h;
  h.reset();
  h = rms_norm(x, layer.norm2, eps);
  h = mlp(layer, std::move(h));
  return x + h;
}

at::Tensor Llava::attention(size_t number, at::Tensor x, const Rotation& rotation, LlavaCache* cache) const {
  const LlavaTextLayer& layer = layers_[number];
  const int64_t heads = *options_.text.heads;
  at::Tensor q = heads_of(at::linear(x, layer.q), heads), k = heads_of(at::linear(x, layer.k), heads),
             v = heads_of(at::linear(x, layer.v), heads);
  x.reset();
  const at::Tensor cos = rotation.cos.to(q.scalar_type()), sin = rotation.sin.to(q.scalar_type());
  q = turned(q, cos, sin);
  k = turned(k, cos, sin);
  const int64_t seen = cache != nullptr ? cache->filled : 0, tokens = q.size(2);
  if (cache != nullptr) {
    cache->keys[number].narrow(2, seen, tokens).copy_(k);
    cache->values[number].narrow(2, seen, tokens).copy_(v);
    k = cache->keys[number].narrow(2, 0, seen + tokens);
    v = cache->values[number].narrow(2, 0, seen + tokens);
  }
  // A single token may look at all before it; several behind others would need a mask, and never come.
  x = seam.attention(std::move(q), std::move(k), std::move(v), {.causal = seen == 0});
  x = seam.keep("attn_out", std::move(x));
  x = x.transpose(1, 2).flatten(2);
  x = at::linear(x, layer.o);
  return seam.keep("o_out", std::move(x));
}

at::Tensor Llava::mlp(const LlavaTextLayer& layer, at::Tensor x) const {
  at::Tensor gate = at::linear(x, layer.gate);
  at::Tensor up = at::linear(x, layer.up);
  x.reset();
  gate = at::silu(gate);
  x = gate * up;
  gate.reset();
  up.reset();
  x = at::linear(x, layer.down);
  return seam.keep("down_out", std::move(x));
}

}  // namespace dtk::models
