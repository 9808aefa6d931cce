// Sizes of a VGGT and which heads it has, free of LibTorch so that configuration code stays quick to compile.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk::models {

/// A published model.
enum class VggtPreset { custom, of_1b };
constexpr auto enum_texts(VggtPreset) {
  return std::array{"custom", "1b"};
}

/// Unset sizes are those of the preset; `custom` has none.
struct VggtOptions {
  VggtPreset preset = VggtPreset::custom;
  std::optional<int64_t> image;
  std::optional<int64_t> patch;   // p
  std::optional<int64_t> hidden;  // C
  std::optional<int64_t> heads;
  std::optional<int64_t> encoder;
  std::optional<int64_t> depth;
  std::optional<int64_t> registers;
  std::optional<int64_t> trunk;
  std::optional<int64_t> features;
  std::optional<std::array<int64_t, 4>> widths;
  std::optional<std::array<int64_t, 4>> taps;
  bool camera = true, depths = true, points = false;

  /// Tokens of a frame beside its patches: the camera's and the registers. Throws std::bad_optional_access
  /// where `registers` is unset, which resolved() fills of a published model.
  int64_t special_tokens() const { return 1 + registers.value(); }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("preset", self.preset, "", "a published model, which sets each size that is not set");
    visit("image", self.image, "[1, 65536]",
          "side that the encoder's positions are stored for, divisible by patch");
    visit("patch", self.patch, "[1, 1024]", "side of a patch, which is a token");
    visit("hidden", self.hidden, "[4, 65536]", "width of a token, divisible by four times heads");
    visit("heads", self.heads, "[1, 1024]",
          "of attention, in the encoder, the aggregator and the camera head");
    visit("encoder", self.encoder, "[1, 1024]", "layers of the encoder");
    visit("depth", self.depth, "[1, 1024]", "pairs of a frame and a global block");
    visit("registers", self.registers, "[0, 1024]",
          "tokens of a frame that stand for no patch, beside the camera's");
    visit("trunk", self.trunk, "[1, 1024]", "blocks of the camera head");
    visit("features", self.features, "[8, 65536]", "width of a dense head, divisible by 8");
    visit("widths", self.widths, "[4, 65536]", "of a dense head's features of each tap, divisible by 4");
    visit("taps", self.taps, "[0, 1023]",
          "pairs that dense heads read, ascending; the last one is the last pair");
    visit("camera", self.camera, "", "has the head for cameras");
    visit("depths", self.depths, "", "has the head for depths");
    visit("points", self.points, "", "has the head for points, which is for inference alone");
  }
  friend bool operator==(const VggtOptions&, const VggtOptions&) = default;
};

/// A key of [vggt] with what is wrong with it, and what to set.
struct VggtProblem {
  std::string key, message;
};

/// With the preset's sizes where none are set; of `custom` as given, which problems() tells of. Throws
/// nothing.
VggtOptions resolved(VggtOptions options);

/// Patterns of the paths of its heads, which the original computes in fp32 whatever the aggregator does.
std::vector<std::string> head_paths(const VggtOptions& options);

/// What keeps a VGGT from being built; empty: nothing.
std::vector<VggtProblem> problems(const VggtOptions& options);

}  // namespace dtk::models
