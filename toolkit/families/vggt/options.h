// The tables [vggt] and those below it.
#pragma once
#include <dtk/models/vggt_options.h>

#include <array>
#include <string>

#include "toolkit/config/config.h"
#include "toolkit/config/options_of.h"

namespace dtk::vggt {

/// [vggt.data]
struct SceneOptions {
  std::string scenes;
  int64_t frames = 4;
  int64_t height = 336;
  int64_t width = 518;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [scenes, frames, height, width] = self;
    visit("scenes", scenes, "", "a folder of them, to train on");
    visit("frames", frames, "[1, 65536]", "of a scene that a sample has, drawn anew each epoch");
    visit("height", height, "[1, 65536]",
          "of a frame in pixels, which pictures that are trained on have; divisible by vggt.patch");
    visit("width", width, "[1, 65536]", "of a frame in pixels, as height");
  }
  friend bool operator==(const SceneOptions&, const SceneOptions&) = default;
};

/// [vggt.loss], weights of its terms (losses.h).
struct LossOptions {
  double camera = 5;
  double depth = 1;
  double confidence = 0.2;
  double gradient = 1;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [camera, depth, confidence, gradient] = self;
    visit("camera", camera, "[0, inf)", "weight of the cameras' term");
    visit("depth", depth, "[0, inf)", "weight of the depths' term");
    visit("confidence", confidence, "[0, inf)",
          "weight of the log of confidences, without which they would go to 0");
    visit("gradient", gradient, "[0, inf)", "weight of differences of neighbours, of the depths' term");
  }
  friend bool operator==(const LossOptions&, const LossOptions&) = default;
};

/// What the model has, of which dit-sample --heads chooses some.
enum class Head { camera, depth, points };
constexpr auto enum_texts(Head) {
  return std::array{"camera", "depth", "points"};
}

/// [vggt.infer]
struct InferOptions {
  bool narrow_heads = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [narrow_heads] = self;
    visit("narrow_heads", narrow_heads, "",
          "with policies.inference.narrow_weights: heads, too; else they are fp32, as the original's");
  }
  friend bool operator==(const InferOptions&, const InferOptions&) = default;
};

struct Options {
  models::VggtOptions model;
  SceneOptions data;
  LossOptions loss;
  InferOptions infer;

  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    visit("vggt", self.model);
    visit("vggt.data", self.data);
    visit("vggt.loss", self.loss);
    visit("vggt.infer", self.infer);
  }
  friend bool operator==(const Options&, const Options&) = default;
};

inline constexpr OptionsOf<Options> options_of;

}  // namespace dtk::vggt
