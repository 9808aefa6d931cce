#include "diffusion_planner/blocks.h"

#include <ATen/ATen.h>
#include <dtk/models/fusable.h>

#include <utility>

// One operator per statement, and dead tensors reset or moved, as in dit.cpp.

namespace dtk::models::diffusion_planner {
namespace {

constexpr double kNormEps = 1e-5;

// (N, L, n·D) -> n tensors (N, H, L, D/H), views of one buffer
Tensors split_heads(const at::Tensor& x, int64_t count, int64_t heads) {
  const int64_t width = x.size(2) / (count * heads);
  return x.unflatten(2, {count, heads, width}).permute({2, 0, 3, 1, 4}).unbind(0);
}

// A projection of x (N, L, D) to (N, L, out).
at::Tensor projected(at::Tensor x, const at::Tensor& weight, const at::Tensor& bias, bool sequence_first) {
  if (!sequence_first) return at::linear(x, weight, bias);
  x = x.transpose(0, 1).contiguous();
  x = at::linear(x, weight, bias);
  return x.transpose(0, 1);
}

// q, k, v (N, H, L, D/H) -> (N, L, D)
at::Tensor attention(const Mha& mha, at::Tensor q, at::Tensor k, at::Tensor v, std::optional<at::Tensor> mask,
                     Pass pass) {
  const double dropout = pass.training ? mha.dropout : 0;
  if (mask && mha.sequence_first) mask = mask->expand({-1, mha.heads, -1, -1}).contiguous();
  at::Tensor out = pass.seam->attention(std::move(q), std::move(k), std::move(v),
                                        {.mask = std::move(mask), .dropout = dropout});
  out = pass.seam->keep("attn_out", std::move(out));
  out = out.transpose(1, 2).flatten(2);
  out = projected(std::move(out), mha.out.weight, mha.out.bias, mha.sequence_first);
  return pass.seam->keep("proj_out", std::move(out));
}

}  // namespace

at::Tensor Pass::run(std::string_view path, const ModuleFn& fn, Tensors&& inputs) const {
  return std::move(seam->run(path, fn, std::move(inputs)).front());
}

at::Tensor Pass::dropout(at::Tensor x, double probability) const {
  if (!drops(probability)) return x;
  return at::dropout(x, probability, /*train=*/true);
}

at::Tensor Pass::drop_path(at::Tensor x, double probability) const {
  if (!drops(probability)) return x;
  at::Tensor stays = at::empty({x.size(0), 1, 1}, x.options().requires_grad(false));
  stays.bernoulli_(1 - probability);
  stays.div_(1 - probability);
  return x * stays;
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kNormEps);
}

at::Tensor run_mlp(const Mlp& mlp, at::Tensor x, Pass pass) {
  if (mlp.first.empty() && mlp.gelu == Gelu::tanh) {
    const double dropout = pass.drops(mlp.dropout) ? mlp.dropout : 0;
    x = models::mlp(*pass.seam, mlp.fc1, mlp.fc2, std::move(x), dropout);
  } else {
    const auto fc1 = [layer = &mlp.fc1](Tensors&& in) { return pack((*layer)(in[0])); };
    x = mlp.first.empty() ? mlp.fc1(x) : pass.run(mlp.first, fc1, pack(std::move(x)));
    x = at::gelu(x, mlp.gelu == Gelu::tanh ? "tanh" : "none");
    x = pass.dropout(std::move(x), mlp.dropout);
    x = mlp.fc2(x);
  }
  x = pass.seam->keep("fc2_out", std::move(x));
  return pass.dropout(std::move(x), mlp.dropout);
}

at::Tensor attend_self(const Mha& mha, at::Tensor x, const at::Tensor& mask, Pass pass) {
  x = projected(std::move(x), mha.in_weight, mha.in_bias, mha.sequence_first);
  Tensors parts = split_heads(x, 3, mha.heads);
  x.reset();
  return attention(mha, std::move(parts[0]), std::move(parts[1]), std::move(parts[2]), mask, pass);
}

at::Tensor attend(const Mha& mha, at::Tensor x, const at::Tensor& context,
                  const std::optional<at::Tensor>& mask, Pass pass) {
  const int64_t hidden = x.size(2);
  const Tensors weights = mha.in_weight.split_with_sizes({hidden, 2 * hidden});
  const Tensors biases = mha.in_bias.split_with_sizes({hidden, 2 * hidden});
  x = projected(std::move(x), weights[0], biases[0], mha.sequence_first);
  Tensors q = split_heads(x, 1, mha.heads);
  x.reset();
  at::Tensor both = projected(context, weights[1], biases[1], mha.sequence_first);
  Tensors kv = split_heads(both, 2, mha.heads);
  both.reset();
  return attention(mha, std::move(q[0]), std::move(kv[0]), std::move(kv[1]), mask, pass);
}

at::Tensor run_mixer(const MixerBlock& block, at::Tensor x, Pass pass) {
  at::Tensor h = block.norm1(x);
  h = h.transpose(1, 2).contiguous();
  h = run_mlp(block.tokens, std::move(h), pass);
  h = h.transpose(1, 2);
  x = x + h;
  h.reset();
  h = block.norm2(x);
  h = run_mlp(block.channels, std::move(h), pass);
  return x + h;
}

at::Tensor run_fusion(const FusionBlock& block, at::Tensor x, const at::Tensor& mask, Pass pass) {
  at::Tensor h = block.norm1(x);
  h = attend(block.attn, std::move(h), x, mask, pass);
  h = pass.drop_path(std::move(h), block.drop_path);
  x = x + h;
  h.reset();
  h = block.norm2(x);
  h = run_mlp(block.mlp, std::move(h), pass);
  h = pass.drop_path(std::move(h), block.drop_path);
  return x + h;
}

at::Tensor pooled(const SequenceEncoder& encoder, at::Tensor x, Pass pass) {
  x = run_mlp(encoder.channel_pre_project, std::move(x), pass);
  x = x.transpose(1, 2).contiguous();
  x = run_mlp(encoder.token_pre_project, std::move(x), pass);
  x = x.transpose(1, 2).contiguous();
  for (const MixerBlock& block : encoder.blocks) {
    const auto fn = [layer = &block, pass](Tensors&& in) {
      return pack(run_mixer(*layer, std::move(in[0]), pass));
    };
    x = pass.run(block.path, fn, pack(std::move(x)));
  }
  return x.mean(1);
}

at::Tensor embedded(const SequenceEncoder& encoder, const at::Tensor& pooled, Pass pass) {
  at::Tensor h = encoder.norm(pooled);
  return run_mlp(encoder.emb_project, std::move(h), pass);
}

at::Tensor modulated(const Norm& norm, const at::Tensor& x, const at::Tensor& shift,
                     const at::Tensor& scale) {
  at::Tensor h = norm(x);
  at::Tensor factor = 1 + scale;
  h = h * factor;
  factor.reset();
  return h + shift;
}

}  // namespace dtk::models::diffusion_planner
