#include <ATen/ATen.h>
#include <dtk/models/layers.h>

#include <utility>

#include "diffusion_planner/parts.h"

namespace dtk::models::diffusion_planner {
namespace {

constexpr int64_t kTurnStep = 10;

// x (N, P, D); y (N, P, D), or (N, 1, D) of a model with one time for all actors
at::Tensor run_block(const DecoderBlock& block, at::Tensor x, const at::Tensor& y, const at::Tensor& context,
                     const at::Tensor& attend_actors, const std::optional<at::Tensor>& attend_context,
                     Pass pass) {
  at::Tensor h = at::silu(y);
  h = block.modulation(h);
  const Tensors m = h.chunk(6, 2);  // shift, scale, gate of attention, then of the first MLP
  h = modulated(block.norm1, x, m[0], m[1]);
  h = attend_self(block.attn, std::move(h), attend_actors, pass);
  h = m[2] * h;
  x = x + h;
  h.reset();
  h = modulated(block.norm2, x, m[3], m[4]);
  h = run_mlp(block.mlp1, std::move(h), pass);
  h = m[5] * h;
  x = x + h;
  h.reset();
  h = block.norm3(x);
  h = attend(block.cross_attn, std::move(h), context, attend_context, pass);
  x = block.residual ? x + h : std::move(h);
  h.reset();
  h = block.norm4(x);
  h = run_mlp(block.mlp2, std::move(h), pass);
  return block.residual ? x + h : h;
}

at::Tensor run_final(const FinalLayer& layer, at::Tensor x, const at::Tensor& y, Pass pass) {
  at::Tensor h = at::silu(y);
  h = layer.modulation(h);
  const Tensors m = h.chunk(2, 2);
  h.reset();
  x = modulated(layer.norm_final, x, m[0], m[1]);
  x = layer.norm_in(x);
  x = layer.inner(x);
  x = at::gelu(x, "tanh");
  x = layer.norm_out(x);
  const auto last = [linear = &layer.last](Tensors&& in) { return pack((*linear)(in[0])); };
  return pass.run(layer.last_path, last, pack(std::move(x)));
}

// t (N) -> (N, D)
at::Tensor run_sinusoidal(const Mlp& mlp, const at::Tensor& t, Pass pass) {
  at::Tensor h = time_features(t);
  const auto fc1 = [layer = &mlp.fc1](Tensors&& in) { return pack((*layer)(in[0])); };
  h = pass.run(mlp.first, fc1, pack(std::move(h)));
  h = at::silu(h);
  return mlp.fc2(h);
}

// What the blocks are conditioned on: (N, P, D), of UP (N, 1, D).
at::Tensor embed_time(const Decoder& decoder, bool upstream, at::Tensor t, const at::Tensor& route,
                      Pass pass) {
  const auto fn = [layer = &decoder.time.mlp, upstream, pass](Tensors&& in) {
    return pack(upstream ? run_sinusoidal(*layer, in[0], pass) : run_mlp(*layer, std::move(in[0]), pass));
  };
  t = pass.run(decoder.time.path, fn, pack(upstream ? std::move(t) : t.flatten(2)));
  if (!upstream) return t;
  t = t + route;
  return t.unsqueeze(1);
}

// (P, D)
at::Tensor actor_rows(const at::Tensor& embedding, int64_t actors) {
  const at::Tensor others = embedding.narrow(0, 1, 1).expand({actors - 1, -1});
  return at::cat({embedding.narrow(0, 0, 1), others});
}

}  // namespace

at::Tensor denoise(const Decoder& decoder, const DiffusionPlannerOptions& options, at::Tensor x, at::Tensor t,
                   const DrivingContext& context, Pass pass) {
  const int64_t n = x.size(0), actors = x.size(1), steps = x.size(2);
  const auto embed = [layer = &decoder.preproj.mlp, pass](Tensors&& in) {
    return pack(run_mlp(*layer, std::move(in[0]), pass));
  };
  x = pass.run(decoder.preproj.path, embed, pack(x.flatten(2)));
  at::Tensor who = actor_rows(decoder.agent_embedding, actors);
  x = x + who;
  who.reset();
  at::Tensor y = embed_time(decoder, options.upstream(), std::move(t), context.route, pass);
  for (const DecoderBlock& block : decoder.blocks) {
    const auto fn = [layer = &block, pass](Tensors&& in) {
      at::Tensor tokens = std::move(in[0]);
      const auto mask = in.size() > 4 ? std::optional<at::Tensor>(in[4]) : std::nullopt;
      return pack(run_block(*layer, std::move(tokens), in[1], in[2], in[3], mask, pass));
    };
    Tensors inputs = pack(std::move(x), y, context.encoding, context.attend_actors);
    if (context.attend_context.defined()) inputs.push_back(context.attend_context);
    x = pass.run(block.path, fn, std::move(inputs));
  }
  const auto last = [layer = &decoder.final_layer, pass](Tensors&& in) {
    at::Tensor tokens = std::move(in[0]);
    return pack(run_final(*layer, std::move(tokens), in[1], pass));
  };
  x = pass.run(decoder.final_layer.path, last, pack(std::move(x), std::move(y)));
  return x.view({n, actors, steps, kPose});
}

// Positions of the ego at the steps 1, 11, 21 ..., and the mean over all tokens, absent ones too.
at::Tensor turn_indicator(const Decoder& decoder, const at::Tensor& ego, const at::Tensor& encoding,
                          Pass pass) {
  at::Tensor path = ego.narrow(-1, 0, 2).slice(1, 1, std::nullopt, kTurnStep).flatten(1);
  const auto fn = [layer = &*decoder.turn_indicator](Tensors&& in) {
    at::Tensor h = in[1].mean(1);
    h = at::cat({in[0], h}, 1);
    return pack((*layer)(h));
  };
  return pass.run(decoder.turn_path, fn, pack(std::move(path), encoding));
}

}  // namespace dtk::models::diffusion_planner
