// What the driving model is made of, and how a forward pass runs it.
//
// Letters: N batch, L tokens, D hidden.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::models::diffusion_planner {

/// One forward pass. Captured by value in what runs inside a module, which backward may recompute.
struct Pass {
  const Seam* seam;
  bool training;

  /// A module of one result.
  at::Tensor run(std::string_view path, const ModuleFn& fn, Tensors&& inputs) const;
  bool drops(double probability) const { return training && probability > 0; }
  at::Tensor dropout(at::Tensor x, double probability) const;
  /// Whole samples are dropped, the others divided by the probability to stay.
  at::Tensor drop_path(at::Tensor x, double probability) const;
};

/// Layer normalisation over the last dimension.
struct Norm {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x) const;
};

enum class Gelu { erf, tanh };

struct Mlp {
  Linear fc1, fc2;
  Gelu gelu = Gelu::erf;
  double dropout = 0;  // after GELU and after fc2
  std::string first;   // path of fc1 where it is a module of its own
};
at::Tensor run_mlp(const Mlp& mlp, at::Tensor x, Pass pass);

/// weight (3D, D) and bias (3D) in rows of queries, keys and values.
struct Mha {
  at::Tensor in_weight, in_bias;
  Linear out;
  int64_t heads = 1;
  double dropout = 0;
  bool sequence_first = false;  // DiffusionPlannerOptions::sequence_first_attention
};
/// x (N, L, D) attends to itself; mask (N, 1, 1, L), true: attend.
at::Tensor attend_self(const Mha& mha, at::Tensor x, const at::Tensor& mask, Pass pass);
/// x (N, L, D) attends to context (N, S, D); mask (N, 1, 1, S) or none.
at::Tensor attend(const Mha& mha, at::Tensor x, const at::Tensor& context,
                  const std::optional<at::Tensor>& mask, Pass pass);

/// x (N, tokens, channels): mixes the tokens of each channel, then the channels of each token.
struct MixerBlock {
  std::string path;
  Norm norm1;
  Mlp channels;
  Norm norm2;
  Mlp tokens;
};
at::Tensor run_mixer(const MixerBlock& block, at::Tensor x, Pass pass);

/// Attention over the objects of a scene. Only queries are normalised, as published.
struct FusionBlock {
  std::string path;
  Norm norm1;
  Mha attn;
  Norm norm2;
  Mlp mlp;
  double drop_path = 0;
};
at::Tensor run_fusion(const FusionBlock& block, at::Tensor x, const at::Tensor& mask, Pass pass);

/// Sequences (M, V, features) become (M, channels) by mixer blocks and a mean, then, with what is added in
/// between, (M, D).
struct SequenceEncoder {
  std::string path;
  Mlp channel_pre_project, token_pre_project;
  std::vector<MixerBlock> blocks;
  Norm norm;
  Mlp emb_project;
};
at::Tensor pooled(const SequenceEncoder& encoder, at::Tensor x, Pass pass);
at::Tensor embedded(const SequenceEncoder& encoder, const at::Tensor& pooled, Pass pass);

/// (1 + scale) · Norm(x) + shift; shift and scale broadcast to x.
at::Tensor modulated(const Norm& norm, const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale);

}  // namespace dtk::models::diffusion_planner
