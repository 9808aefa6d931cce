// LLaVA, a vision-language model: a CLIP tower, a projector and a LLaMA decoder (Liu et al., 2023), with the
// names of its own checkpoints.
//
// Letters: N batch, T tokens of the longest sample, M pictures of the batch, P tokens of a picture, h hidden
// of the decoder, V vocabulary, L rows that carry a label, K rows that a picture's features replace.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/models/layers.h>
#include <dtk/models/llava_options.h>
#include <dtk/models/quantized.h>
#include <dtk/models/seam.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::models {

/// x + out(attention(norm1 x)), then x + fc2(g(fc1(norm2 x))) with g(y) = y·sigmoid(1.702 y).
struct LlavaTowerLayer {
  Linear norm1, q, k, v, out, norm2, fc1, fc2;  // of a norm: weight and bias
};

/// weight (out, in); down (r, in) and up (out, r) of its adapter, undefined without one.
struct LlavaProjection {
  at::Tensor weight;                   // undefined where it is packed
  std::optional<PackedWeight> packed;  // absent where it is not
  at::Tensor down, up;
};

/// x + o(attention(norm1 x)), then x + down(silu(gate(norm2 x)) · up(norm2 x)).
struct LlavaTextLayer {
  at::Tensor norm1, norm2;
  LlavaProjection q, k, v, o, gate, up, down;
};

/// A batch of samples, right-padded. A row is a token's place in the batch: sample·T + place. All that says
/// where something goes is known on the host when a batch is made, so that no step reads a value.
struct LlavaBatch {
  at::Tensor ids;           // (N, T) int64 of the vocabulary; anything where a picture's features go
  at::Tensor pictures;      // (M, 3, S, S), normalised; M may be 0
  at::Tensor feature_rows;  // (K) int64, below M·P: which of the pictures' tokens are there, K <= M·P
  at::Tensor picture_rows;  // (K) int64, below N·T: where each of them goes
  at::Tensor label_rows;    // (L) int64, below N·T: rows that say what comes next
  at::Tensor labels;        // (L) int64: what does
};

/// Keys and values of the tokens that were seen, for the tokens to come: 4h bytes a token and layer in 16
/// bits.
struct LlavaCache {
  std::vector<at::Tensor> keys, values;  // of each layer (N, H, tokens, d)
  int64_t filled = 0;                    // tokens
};

/// Const functions may be called by several threads at once, as long as no policy is in `seam`.
class Llava {
 public:
  /// Builds the parameters on `device`: trained ones in fp32, frozen ones as options.base says. Weights are
  /// drawn from `generator`, a generator of that device (absent: the device's default generator): decoder,
  /// embeddings and tower normal with deviation 0.02, projector as torch.nn.Linear. Throws
  /// std::invalid_argument with the first of problems(options).
  Llava(const LlavaOptions& options, c10::Device device,
        std::optional<at::Generator> generator = std::nullopt, const ParameterMade& made = {});

  /// The mean cross-entropy over the L labels, fp32; 0 without labels. The logits of loss_chunk rows are
  /// there at once.
  at::Tensor loss(LlavaBatch batch, bool training = true) const;
  /// Logits (L, V) of the rows with labels, all at once.
  at::Tensor logits(LlavaBatch batch) const;
  /// The `count` tokens (N, count) that most likely follow prompts of one length, one after another; what
  /// comes behind an end is there, too, as no value is read meanwhile. Takes no gradient. `go_on` is asked
  /// before each token, with its number; absent where it said no.
  std::optional<at::Tensor> continued(LlavaBatch prompts, int64_t count,
                                      const std::function<bool(int64_t token)>& go_on) const;
  /// Features (M, P, h) of pictures (M, 3, S, S). It and the three above throw c10::Error for other shapes or
  /// types than a LlavaBatch states.
  at::Tensor encode(at::Tensor pictures) const;

  /// All parameters in a fixed order. The names are those of LLaVA's own files.
  const NamedTensors& parameters() const { return parameters_; }
  /// Matrices that are packed, by the name that their weight would have; they are no parameters.
  const std::vector<std::pair<std::string, PackedWeight>>& packed() const { return packed_; }
  /// Of the tower behind the tap: trained with it by name, and no loss reaches them.
  const std::vector<std::string>& unused() const { return unused_; }
  /// The named modules that run through the seam, in order of execution.
  const std::vector<std::string>& paths() const { return paths_; }
  const LlavaOptions& options() const { return options_; }

  /// Replace its members to put policies in.
  Seam seam;

 private:
  struct Builder;
  at::Tensor run(std::string_view path, const ModuleFn& fn, Tensors&& inputs) const;
  at::Tensor hidden(LlavaBatch& batch, bool training) const;
  at::Tensor embedded(LlavaBatch& batch) const;
  at::Tensor decoded(at::Tensor x, LlavaCache* cache, bool training) const;
  at::Tensor product(const LlavaProjection& matrix, const at::Tensor& x, bool training) const;
  at::Tensor embed_pictures(at::Tensor pictures) const;
  at::Tensor tower_layer(const LlavaTowerLayer& layer, at::Tensor x) const;
  at::Tensor project(at::Tensor x) const;
  at::Tensor embed(at::Tensor ids) const;
  at::Tensor normed(const at::Tensor& x) const;
  /// Cosine and sine (T, d) of the places from `first` on, as x is and, after these, as autocast multiplies.
  Tensors rotation(int64_t first, int64_t tokens, const at::Tensor& x) const;
  at::Tensor text_layer(size_t number, at::Tensor x, const Tensors& rotation, LlavaCache* cache,
                        bool training) const;
  at::Tensor attention(size_t number, at::Tensor x, const Tensors& rotation, LlavaCache* cache,
                       bool training) const;
  at::Tensor mlp(const LlavaTextLayer& layer, at::Tensor x, bool training) const;

  LlavaOptions options_;  // resolved
  NamedTensors parameters_;
  std::vector<std::pair<std::string, PackedWeight>> packed_;
  std::vector<std::string> unused_, paths_;
  size_t first_tower_ = 0, first_text_ = 0;  // in paths_

  at::Tensor class_embedding_, patches_, positions_;  // (c), (c, 3, p, p), (1 + P, c)
  Linear pre_norm_;
  std::vector<LlavaTowerLayer> tower_;  // that run
  std::vector<Linear> projector_;
  at::Tensor embedding_;  // (V, h)
  std::vector<LlavaTextLayer> layers_;
  at::Tensor norm_, head_;  // (h), (V, h)
};

/// The mean cross-entropy of x (L, h) times `head` (V, h) against labels (L), fp32. Backward takes nothing of
/// L x V: both gradients are made beside the loss, `chunk` rows at a time, at most 10 bytes a logit of a
/// chunk. Throws c10::ValueError for `chunk` below 1, c10::Error where a graph of backward is asked for.
at::Tensor chunked_cross_entropy(const at::Tensor& x, const at::Tensor& head, const at::Tensor& labels,
                                 int64_t chunk);

}  // namespace dtk::models
