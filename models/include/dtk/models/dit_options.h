// Sizes of a DiT and what it offers to policies, free of LibTorch so that configuration code stays quick to
// compile.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk::models {

/// The published sizes, each with patches of three sides: `xl_2` is DiT-XL/2.
enum class DitPreset { custom, s_2, s_4, s_8, b_2, b_4, b_8, l_2, l_4, l_8, xl_2, xl_4, xl_8 };
constexpr auto enum_texts(DitPreset) {
  return std::array{"custom",  "DiT-S/2", "DiT-S/4", "DiT-S/8",  "DiT-B/2",  "DiT-B/4", "DiT-B/8",
                    "DiT-L/2", "DiT-L/4", "DiT-L/8", "DiT-XL/2", "DiT-XL/4", "DiT-XL/8"};
}

/// The class-conditional diffusion transformer. `name` fixes depth, hidden, heads and patch for the
/// published sizes; with `custom` all four must be given.
struct DitOptions {
  DitPreset name = DitPreset::custom;
  std::optional<int64_t> depth;   // L
  std::optional<int64_t> hidden;  // D
  std::optional<int64_t> heads;   // H
  std::optional<int64_t> patch;   // p
  int64_t image_size = 32;        // S
  int64_t channels = 4;           // C
  int64_t classes = 1000;
  double class_dropout = 0.1;  // without it there is no null label
  bool learn_sigma = true;
  double mlp_ratio = 4.0;
  double mlp_dropout = 0.0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [name, depth, hidden, heads, patch, image_size, channels, classes, class_dropout, learn_sigma,
           mlp_ratio, mlp_dropout] = self;
    visit("name", name, "", "a published size, or custom: then depth, hidden, heads and patch are wanted");
    visit("depth", depth, "[1, 1024]", "blocks");
    visit("hidden", hidden, "[4, 65536]", "width of a token, divisible by 4 and by heads");
    visit("heads", heads, "[1, 1024]", "of attention");
    visit("patch", patch, "[1, 1024]",
          "side of a patch, which is a token; image_size must be divisible by it");
    visit("image_size", image_size, "[1, 65536]", "height and width of what is diffused, images or latents");
    visit("channels", channels, "[1, 65536]", "of what is diffused");
    visit("classes", classes, "[1, 1000000000]", "labels that samples have and are drawn for");
    visit("class_dropout", class_dropout, "[0, 1)",
          "probability that training hides a sample's class; 0: no guidance");
    visit("learn_sigma", learn_sigma, "", "predict variances too, in twice the channels");
    visit("mlp_ratio", mlp_ratio, "(0, 64]", "width within an MLP, divided by hidden");
    visit("mlp_dropout", mlp_dropout, "[0, 1)", "within an MLP, in training");
  }
  friend bool operator==(const DitOptions&, const DitOptions&) = default;

  int64_t tokens() const;        ///< T = (image_size / patch)²; throws as resolved()
  int64_t out_channels() const;  ///< C, or 2C with learn_sigma
};

/// What each block offers to Seam::keep, in order.
inline constexpr std::array<const char*, 3> dit_kept_results = {"attn_out", "proj_out", "fc2_out"};

/// Where policies act in a DiT if nobody says, for policies.checkpoint.targets and policies.precision.fp32:
/// embedders and final layer are small, and what leaves the final layer needs more than the 8 significant
/// bits of bf16.
inline constexpr const char* dit_checkpoint_target = "blocks.*";
inline constexpr const char* dit_fp32_end = "final_layer";

/// Depth, hidden, heads and patch of a published size; nothing for `custom`.
struct DitSize {
  int64_t depth, hidden, heads, patch;
};
std::optional<DitSize> published_size(DitPreset name);

/// A rule of DitOptions that spans several fields and is broken: which field, and what to do.
struct DitProblem {
  std::string field;
  std::string message;
};
/// Every broken rule, in field order; empty if a DiT can be built.
std::vector<DitProblem> problems(const DitOptions& options);

/// `options` with depth, hidden, heads and patch filled in from a published name; the name stays, and
/// resolving the result again changes nothing. Throws std::invalid_argument with the first of
/// problems(options).
DitOptions resolved(const DitOptions& options);

}  // namespace dtk::models
