// Sizes of a LLaVA and which of it is trained, free of LibTorch so that configuration code stays quick to
// compile.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk::models {

/// The CLIP vision tower. Unset sizes are those of the preset.
struct LlavaVision {
  std::optional<int64_t> hidden;
  std::optional<int64_t> mlp;
  std::optional<int64_t> depth;
  std::optional<int64_t> heads;
  std::optional<int64_t> image;  // S
  std::optional<int64_t> patch;  // p

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [hidden, mlp, depth, heads, image, patch] = self;
    visit("hidden", hidden, "[1, 65536]", "width of a token, divisible by heads");
    visit("mlp", mlp, "[1, 1048576]", "width within an MLP");
    visit("depth", depth, "[1, 1024]", "layers, of which those up to the tap run");
    visit("heads", heads, "[1, 1024]", "of attention");
    visit("image", image, "[1, 65536]", "height and width of a picture, divisible by patch");
    visit("patch", patch, "[1, 1024]", "side of a patch, which is a token");
  }
  friend bool operator==(const LlavaVision&, const LlavaVision&) = default;
};

/// The LLaMA decoder. Unset sizes are those of the preset.
struct LlavaText {
  std::optional<int64_t> hidden;  // h
  std::optional<int64_t> mlp;     // f
  std::optional<int64_t> depth;
  std::optional<int64_t> heads;
  std::optional<int64_t> vocabulary;  // V
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [hidden, mlp, depth, heads, vocabulary, norm_eps, rope_theta] = self;
    visit("hidden", hidden, "[2, 65536]", "width of a token, divisible by twice heads");
    visit("mlp", mlp, "[1, 1048576]", "width within an MLP");
    visit("depth", depth, "[1, 1024]", "layers");
    visit("heads", heads, "[1, 1024]", "of attention");
    visit("vocabulary", vocabulary, "[2, 16777216]", "tokens that there are");
    visit("norm_eps", norm_eps, "(0, 1]", "added to mean squares in norms");
    visit("rope_theta", rope_theta, "(0, inf)", "base of the rotary positions' frequencies");
  }
  friend bool operator==(const LlavaText&, const LlavaText&) = default;
};

/// Low-rank adapters beside matrices of the decoder: W x + alpha/r · B A drop(x), with A (r, in), B (out, r).
struct LlavaLora {
  int64_t r = 0;
  double alpha = 16;
  double dropout = 0.0;
  std::vector<std::string> targets = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                      "gate_proj", "up_proj", "down_proj"};

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [r, alpha, dropout, targets] = self;
    visit("r", r, "[0, 65536]", "rank of adapters; 0: none");
    visit("alpha", alpha, "(0, inf)", "what an adapter adds is times alpha / r");
    visit("dropout", dropout, "[0, 1)", "of what an adapter sees, in training");
    visit("targets", targets, "", "matrices of the decoder that have adapters");
  }
  friend bool operator==(const LlavaLora&, const LlavaLora&) = default;
};

/// What frozen parameters are stored in. `int8` and `nf4`: the matrices of the decoder's layers so, all else
/// in bf16 (quantized.h).
enum class LlavaBase { fp32, bf16, int8, nf4 };
constexpr bool is_packed(LlavaBase base) {
  return base == LlavaBase::int8 || base == LlavaBase::nf4;
}
constexpr auto enum_texts(LlavaBase) {
  return std::array{"fp32", "bf16", "int8", "nf4"};
}

/// Which parameters are trained, as fp32; the others are frozen.
struct LlavaTrained {
  bool vision = false;
  bool projector = true;
  bool text = true;  // the decoder, its last norm and the head with it
  bool lora = false;
  bool norm = false;  // the decoder's last one
  bool head = false;
  friend bool operator==(const LlavaTrained&, const LlavaTrained&) = default;
};

/// A published model, which sets all sizes that are not set.
enum class LlavaPreset { custom, of_7b, of_13b };
constexpr auto enum_texts(LlavaPreset) {
  return std::array{"custom", "7b", "13b"};
}

struct LlavaOptions {
  LlavaPreset preset = LlavaPreset::custom;
  std::string projector = "mlp2x_gelu";
  int64_t tap = -2;
  LlavaBase base = LlavaBase::bf16;
  bool double_quant = true;
  int64_t loss_chunk = 64;
  LlavaVision vision = {};
  LlavaText text = {};
  LlavaLora lora = {};
  LlavaTrained trained = {};  // no key of [llava]

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("preset", self.preset, "", "a published model, which sets each size that is not set");
    visit("projector", self.projector, "", "mlp2x_gelu with any digit from 1, linear or identity");
    visit("tap", self.tap, "[-1024, -1]",
          "which of the tower's hidden states is read, from the end; -1: the last layer's");
    visit("base", self.base, "",
          "type that frozen parameters are stored in; int8 and nf4: matrices of the decoder's layers, and "
          "all else in bf16");
    visit("double_quant", self.double_quant, "", "nf4: the blocks' magnitudes in 8 bits, too");
    visit("loss_chunk", self.loss_chunk, "[1, 1048576]", "rows whose logits are there at once");
  }
  friend bool operator==(const LlavaOptions&, const LlavaOptions&) = default;

  int64_t image_tokens() const;     ///< P = (S/p)², of one picture; throws as resolved()
  int64_t tower_layers() const;     ///< that run: all up to the tap; throws as resolved()
  int64_t projector_depth() const;  ///< its linear layers: 0 for "identity"; -1 where it is none of the words
  bool is_projector_mlp() const;    ///< "mlpNx_gelu"
};

/// What each layer of the decoder offers to Seam::keep, in order.
inline constexpr std::array<const char*, 3> llava_kept_results = {"attn_out", "o_out", "down_out"};

/// For policies.checkpoint.targets: a frozen tower keeps nothing that recomputing could free.
inline constexpr const char* llava_checkpoint_target = "model.layers.*";

/// A rule of LlavaOptions that is broken: which key below [llava], and what to do.
struct LlavaProblem {
  std::string key;
  std::string message;
};
/// Every broken rule; empty if a LLaVA can be built.
std::vector<LlavaProblem> problems(const LlavaOptions& options);

/// `options` with all sizes set; resolving the result again changes nothing. Throws std::invalid_argument
/// with the first of problems(options).
LlavaOptions resolved(const LlavaOptions& options);

}  // namespace dtk::models
