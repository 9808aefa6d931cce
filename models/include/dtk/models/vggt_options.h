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
  std::optional<int64_t> image;      // side that the encoder's positions are stored for, divisible by patch
  std::optional<int64_t> patch;      // p
  std::optional<int64_t> hidden;     // C, divisible by 4·heads: positions turn quarters of a head
  std::optional<int64_t> heads;      // of the encoder, the aggregator and the camera head
  std::optional<int64_t> encoder;    // layers of the encoder
  std::optional<int64_t> depth;      // pairs of a frame and a global block
  std::optional<int64_t> registers;  // tokens
  std::optional<int64_t> trunk;      // blocks of the camera head
  std::optional<int64_t> features;   // width of a dense head, divisible by 8
  std::optional<std::array<int64_t, 4>> widths;  // of its features of each tap, divisible by 4
  std::optional<std::array<int64_t, 4>> taps;  // pairs that dense heads read, ascending; the last is the last
  bool camera = true, depths = true, points = false;  // the heads

  /// Tokens of a frame beside its patches: the camera's and the registers. Throws std::bad_optional_access
  /// where `registers` is unset, which resolved() fills of a published model.
  int64_t special_tokens() const { return 1 + registers.value(); }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("preset", self.preset, "");
    visit("image", self.image, "[1, 65536]");
    visit("patch", self.patch, "[1, 1024]");
    visit("hidden", self.hidden, "[4, 65536]");
    visit("heads", self.heads, "[1, 1024]");
    visit("encoder", self.encoder, "[1, 1024]");
    visit("depth", self.depth, "[1, 1024]");
    visit("registers", self.registers, "[0, 1024]");
    visit("trunk", self.trunk, "[1, 1024]");
    visit("features", self.features, "[8, 65536]");
    visit("widths", self.widths, "[4, 65536]");
    visit("taps", self.taps, "[0, 1023]");
    visit("camera", self.camera, "");
    visit("depths", self.depths, "");
    visit("points", self.points, "");
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
