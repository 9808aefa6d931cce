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
  double least_time = 1e-3;  // times are drawn from [least_time, 1)

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [prediction, velocity, prefix, max_delay, least_time] = self;
    visit("prediction", prediction, "");
    visit("velocity", velocity, "");
    visit("prefix", prefix, "");
    visit("max_delay", max_delay, "[0, 1000]");
    visit("least_time", least_time, "(0, 1)");
  }
  friend bool operator==(const ProcessOptions&, const ProcessOptions&) = default;
};

/// Weights of the loss terms (losses.h). A term of weight 0 is not computed.
struct LossOptions {
  double ego = 1.0;
  double neighbor = 0.1;  // upstream: 1.0
  double turn_indicator = 1.0;
  double road_border = 1.0;
  double collision = 0.0;

  // Of a pose's error. true: its square, summed over the four channels; the weights of its parts and of the
  // time are unused. Upstream's.
  bool squared_error = false;
  double lateral = 1.0;
  double longitudinal = 1.0;
  double heading = 1.0;
  // The longitudinal part is divided by max(1, |speed_weight · v|), v the ego's speed as the network gets it:
  // in units of 20 m/s, so that nothing is divided below that speed.
  double speed_weight = 1.0;
  std::array<double, 4> time_weights = {1.0, 1.0, 1.0, 1.0};  // of the quarters of the horizon
  int64_t ego_horizon = 80;                                   // steps of the ego that count
  double unchanged_turn = 0.05;  // weight of samples whose turn indicator stays as it is

  // Of the velocity representation: the weight of where the steps lead to, and how many of them learn of it.
  double integrated = 0.1;
  int64_t integrated_window = 10;

  double border_margin = 0.25;  // m between the ego's outline and a road border
  // Further points on each edge of the outline. A border between two points is not seen.
  int64_t border_points = 2;
  // Pairs of a point and a border's segment that are looked at together; a pair takes 16 bytes meanwhile.
  int64_t border_chunk = 1 << 20;
  double vehicle_margin = 0.25;  // m around a neighbour of each kind, on all sides
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
    visit("ego", ego, "[0, inf)");
    visit("neighbor", neighbor, "[0, inf)");
    visit("turn_indicator", turn_indicator, "[0, inf)");
    visit("road_border", road_border, "[0, inf)");
    visit("collision", collision, "[0, inf)");
    visit("squared_error", squared_error, "");
    visit("lateral", lateral, "[0, inf)");
    visit("longitudinal", longitudinal, "[0, inf)");
    visit("heading", heading, "[0, inf)");
    visit("speed_weight", speed_weight, "[0, inf)");
    visit("time_weights", time_weights, "[0, inf)");
    visit("ego_horizon", ego_horizon, "[1, inf)");
    visit("unchanged_turn", unchanged_turn, "[0, 1]");
    visit("integrated", integrated, "[0, inf)");
    visit("integrated_window", integrated_window, "[1, inf)");
    visit("border_margin", border_margin, "[0, inf)");
    visit("border_points", border_points, "[0, 100]");
    visit("border_chunk", border_chunk, "[1, inf)");
    visit("vehicle_margin", vehicle_margin, "[0, inf)");
    visit("pedestrian_margin", pedestrian_margin, "[0, inf)");
    visit("bicycle_margin", bicycle_margin, "[0, inf)");
    visit("exploding_heading_gradient", exploding_heading_gradient, "");
  }
  friend bool operator==(const LossOptions&, const LossOptions&) = default;

  double min_heading() const { return exploding_heading_gradient ? 1e-6 : 1e-2; }
};

/// Shifts the ego's present state and leads it back to its path (augmentation.h).
struct AugmentationOptions {
  double probability = 0.5;
  double least_speed = 2.0;  // m/s forward, below which nothing is shifted
  double lateral = 0.75;     // m to either side
  double yaw = 0.2;          // rad; upstream: 0.35
  int64_t rebuilt = 20;      // steps of 0.1 s that lead back
  double past_scale = 0.1;   // deviation of the factor on the ego's past and speeds, limited to [0.8, 1.2]
  bool smooth = true;        // fit each ego future, shifted or not, by a drivable one (smoothing.h)

  // The original draws one number for all nine perturbations of a sample.
  bool shared_perturbation = false;
  // The original leaves the goal pose and the ego's past in the frame before the shift.
  bool unmoved_goal_and_past = false;
  // The original also shifts an ego that drives backwards: its speed becomes 0, and its path turns round.
  bool shifted_reversing = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [probability, least_speed, lateral, yaw, rebuilt, past_scale, smooth, shared_perturbation,
           unmoved_goal_and_past, shifted_reversing] = self;
    visit("probability", probability, "[0, 1]");
    visit("least_speed", least_speed, "(0, inf)");
    visit("lateral", lateral, "[0, inf)");
    visit("yaw", yaw, "[0, inf)");
    visit("rebuilt", rebuilt, "[2, inf)");
    visit("past_scale", past_scale, "[0, inf)");
    visit("smooth", smooth, "");
    visit("shared_perturbation", shared_perturbation, "");
    visit("unmoved_goal_and_past", unmoved_goal_and_past, "");
    visit("shifted_reversing", shifted_reversing, "");
  }
  friend bool operator==(const AugmentationOptions&, const AugmentationOptions&) = default;
};

/// What [data] says of frames.
struct FrameFileOptions {
  std::string frames;         // folder of .npz files, or a JSON list of their paths
  std::string held_out;       // the same of frames that are never trained on
  std::string normalization;  // scales of the inputs (.json); "": the published ones

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [frames, held_out, normalization] = self;
    visit("frames", frames, "");
    visit("held_out", held_out, "");
    visit("normalization", normalization, "");
  }
  friend bool operator==(const FrameFileOptions&, const FrameFileOptions&) = default;
};

/// What [sample] says of trajectories.
struct TrajectoryOptions {
  int64_t frames = 8;  // whose trajectories are drawn, held-out ones if there are some; 0: none

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("frames", self.frames, "[0, 65536]");
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
