// Options of the driving model's training: objective, sampler, augmentation and learning rate, free of
// LibTorch. (dtk::planner, which plans memory, is something else.)
//
// Defaults are those of preset H. Where the original has a defect that is repaired here, a switch named after
// it brings the original's behaviour back; each is off unless asked for.
#pragma once
#include <dtk/models/diffusion_planner_options.h>

#include <array>
#include <cstdint>
#include <string>

#include "toolkit/config/config.h"
#include "toolkit/config/options_of.h"

namespace dtk::diffusion_planner {

/// x_start: the clean trajectory. The original's flow_matching runs neither in training nor in sampling.
enum class PredictedForm { x_start };
constexpr auto enum_texts(PredictedForm) {
  return std::array{"x_start"};
}

/// What the network predicts, and of which noised trajectories.
struct ProcessOptions {
  PredictedForm prediction = PredictedForm::x_start;
  // true: what is diffused is the way of each step (x, y) and the heading at its end, not poses.
  bool velocity = false;
  // Steps of the ego that may be given as truth: their number is drawn from 0 .. max_delay. A time of its own
  // for every actor and step. false: upstream's one time per sample, and no prefix.
  bool prefix = true;
  int64_t max_delay = 5;
  double min_time = 1e-3;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [prediction, velocity, prefix, max_delay, min_time] = self;
    visit("prediction", prediction, "", "what the network predicts: the clean trajectory");
    visit("velocity", velocity, "", "diffuse the ways of steps, not poses");
    visit("prefix", prefix, "",
          "the ego's first steps may be given as truth, and the network is told so; not upstream's");
    visit("max_delay", max_delay, "[0, 1000]", "steps of the ego that prefix gives, at most");
    visit("least_time", min_time, "(0, 1)", "times of training are drawn from here to 1");
  }
  friend bool operator==(const ProcessOptions&, const ProcessOptions&) = default;
};

/// Weights of the loss terms (losses.h). A term of weight 0 is not computed.
struct LossOptions {
  double ego = 1.0;
  double neighbor = 0.1;
  double turn_indicator = 1.0;
  double road_border = 1.0;
  double collision = 0.0;

  bool squared_error = false;
  double lateral = 1.0;
  double longitudinal = 1.0;
  double heading = 1.0;
  // The longitudinal part is divided by max(1, |speed_weight · v|), v the ego's speed as the network gets it:
  // in units of 20 m/s, so that nothing is divided below that speed.
  double speed_weight = 1.0;
  std::array<double, 4> time_weights = {1.0, 1.0, 1.0, 1.0};
  int64_t ego_horizon = 80;
  double unchanged_turn = 0.05;

  double integrated = 0.1;
  int64_t integrated_window = 10;

  double border_margin = 0.25;
  int64_t border_points = 2;
  int64_t border_chunk = 1 << 20;
  double vehicle_margin = 0.25;
  double pedestrian_margin = 1.0;
  double bicycle_margin = 0.5;

  // The original divides headings by their length or 1e-6: for an output that is still zero the border's
  // gradient is 1e6 times too large, and clipping leaves nothing of the others. Else by 1e-2 at least.
  bool exploding_heading_gradient = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [ego, neighbor, turn_indicator, road_border, collision, squared_error, lateral, longitudinal,
           heading, speed_weight, time_weights, ego_horizon, unchanged_turn, integrated, integrated_window,
           border_margin, border_points, border_chunk, vehicle_margin, pedestrian_margin, bicycle_margin,
           exploding_heading_gradient] = self;
    visit("ego", ego, "[0, inf)", "weight of the ego's term; a term of weight 0 is not computed");
    visit("neighbor", neighbor, "[0, inf)", "weight of the neighbours' term; upstream: 1.0");
    visit("turn_indicator", turn_indicator, "[0, inf)", "weight of the turn indicator's term");
    visit("road_border", road_border, "[0, inf)", "weight of the term of road borders");
    visit("collision", collision, "[0, inf)", "weight of the term of collisions");
    visit("squared_error", squared_error, "",
          "of a pose's four channels, as upstream; the weights of its parts and of the time are then unused");
    visit("lateral", lateral, "[0, inf)", "weight of a pose's error to the side");
    visit("longitudinal", longitudinal, "[0, inf)", "weight of its error along the way");
    visit("heading", heading, "[0, inf)", "weight of its heading's error");
    visit("speed_weight", speed_weight, "[0, inf)",
          "divides the error along the way by max(1, |this · speed|), with speeds in units of 20 m/s");
    visit("time_weights", time_weights, "[0, inf)", "of the quarters of the horizon");
    visit("ego_horizon", ego_horizon, "[1, inf)", "steps of the ego that count");
    visit("unchanged_turn", unchanged_turn, "[0, 1]",
          "weight of samples whose turn indicator stays as it is");
    visit("integrated", integrated, "[0, inf)", "velocity: weight of where the steps lead to");
    visit("integrated_window", integrated_window, "[1, inf)", "velocity: how many steps learn of it");
    visit("border_margin", border_margin, "[0, inf)",
          "m between the ego's outline and a road border, below which there is a loss");
    visit("border_points", border_points, "[0, 100]",
          "points on each edge of the outline beside its corners; a border that passes between two is not "
          "seen");
    visit("border_chunk", border_chunk, "[1, inf)",
          "pairs of a point and a border's segment looked at together, of 16 bytes each");
    visit("vehicle_margin", vehicle_margin, "[0, inf)", "m around a vehicle, on all sides");
    visit("pedestrian_margin", pedestrian_margin, "[0, inf)", "m around a pedestrian");
    visit("bicycle_margin", bicycle_margin, "[0, inf)", "m around a bicycle");
    visit("exploding_heading_gradient", exploding_heading_gradient, "",
          "as the original: divide headings by their length or 1e-6, which at first drowns all other "
          "gradients");
  }
  friend bool operator==(const LossOptions&, const LossOptions&) = default;

  double min_heading() const { return exploding_heading_gradient ? 1e-6 : 1e-2; }
};

/// Shifts the ego's present state and leads it back to its path (augmentation.h).
struct AugmentationOptions {
  double probability = 0.5;
  double min_speed = 2.0;
  double lateral = 0.75;
  double yaw = 0.2;
  int64_t rebuilt = 20;
  double past_scale = 0.1;
  bool smooth = true;

  bool shared_perturbation = false;
  bool unmoved_goal_and_past = false;
  bool shifted_reversing = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [probability, min_speed, lateral, yaw, rebuilt, past_scale, smooth, shared_perturbation,
           unmoved_goal_and_past, shifted_reversing] = self;
    visit("probability", probability, "[0, 1]", "that a sample is shifted");
    visit("least_speed", min_speed, "(0, inf)", "m/s forward, below which nothing is shifted");
    visit("lateral", lateral, "[0, inf)", "m to either side, at most");
    visit("yaw", yaw, "[0, inf)", "rad to either side, at most; upstream: 0.35");
    visit("rebuilt", rebuilt, "[2, inf)", "steps of 0.1 s that lead back to the path");
    visit("past_scale", past_scale, "[0, inf)",
          "deviation of the factor on the ego's past and speeds, limited to [0.8, 1.2]");
    visit("smooth", smooth, "", "fit each future of the ego by a drivable one");
    visit("shared_perturbation", shared_perturbation, "",
          "as the original: one random number for all that is perturbed of a sample");
    visit("unmoved_goal_and_past", unmoved_goal_and_past, "",
          "as the original: goal and past stay in the frame before the shift");
    visit("shifted_reversing", shifted_reversing, "",
          "as the original: also shift an ego that drives backwards, which then turns round");
  }
  friend bool operator==(const AugmentationOptions&, const AugmentationOptions&) = default;
};

/// What [data] says of frames.
struct FrameFileOptions {
  std::string frames;
  std::string held_out;
  std::string normalization;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [frames, held_out, normalization] = self;
    visit("frames", frames, "", "frames: folder of .npz files, or a JSON list of their paths");
    visit("held_out", held_out, "", "frames: folder or list of those that are never trained on");
    visit("normalization", normalization, "",
          "frames: scales of the inputs (.json); \"\": the published ones");
  }
  friend bool operator==(const FrameFileOptions&, const FrameFileOptions&) = default;
};

/// What [sample] says of trajectories.
struct TrajectoryOptions {
  int64_t frames = 8;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("frames", self.frames, "[0, 65536]",
          "whose trajectories are drawn, held-out ones if there are some; 0: none");
  }
  friend bool operator==(const TrajectoryOptions&, const TrajectoryOptions&) = default;
};

/// [diffusion_planner] and its sub-tables, and what is the driving model's of [data] and [sample].
struct Options {
  models::DiffusionPlannerOptions model;
  ProcessOptions process;
  LossOptions loss;
  AugmentationOptions augmentation;
  FrameFileOptions data;
  TrajectoryOptions sample;

  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    auto& [model, process, loss, augmentation, data, sample] = self;
    visit("diffusion_planner", model);
    visit("diffusion_planner.process", process);
    visit("diffusion_planner.loss", loss);
    visit("diffusion_planner.augmentation", augmentation);
    visit("data", data);
    visit("sample", sample);
  }
  friend bool operator==(const Options&, const Options&) = default;
};

inline constexpr OptionsOf<Options> options_of;

}  // namespace dtk::diffusion_planner
