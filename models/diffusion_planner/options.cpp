#include <dtk/models/diffusion_planner_options.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "seam/option_text.h"

namespace dtk::models {
namespace {

constexpr int64_t kMaxCount = 65536;
constexpr int64_t kTurnStep = 10;  // the turn indicator's head looks at every tenth step of the future

using Options = DiffusionPlannerOptions;

Options tier4(DiffusionPlannerPreset preset, int64_t agents) {
  Options all;
  all.preset = preset;
  all.hidden_dim = 256;
  all.num_heads = 8;
  all.encoder_mixer_depth = all.encoder_fusion_depth = 6;
  all.decoder_depth = 3;
  all.time_len = 31;
  all.future_len = 80;
  all.agent_num = all.predicted_neighbor_num = agents;
  all.static_objects_num = 5;
  all.lane_num = 140;
  all.route_num = 25;
  all.lane_len = all.route_len = all.line_string_len = 20;
  all.polygon_num = 10;
  all.polygon_len = 40;
  all.line_string_num = 60;
  return all;
}

Options preset_h() {
  Options all = tier4(DiffusionPlannerPreset::h, 320);
  all.ego_history_dropout = 0.4;
  all.oldest_ego_history = false;
  all.mask_context = true;
  return all;
}

Options preset_m() {
  Options all = tier4(DiffusionPlannerPreset::m, 32);
  all.ego_history_dropout = 0.6;
  all.oldest_ego_history = true;
  all.mask_context = false;
  return all;
}

Options preset_up() {
  Options all;
  all.preset = DiffusionPlannerPreset::up;
  all.hidden_dim = 192;
  all.num_heads = 6;
  all.encoder_mixer_depth = all.encoder_fusion_depth = all.decoder_depth = 3;
  all.time_len = 21;
  all.future_len = 80;
  all.agent_num = 32;
  all.predicted_neighbor_num = 10;
  all.static_objects_num = 5;
  all.lane_num = 70;
  all.route_num = 25;
  all.lane_len = all.route_len = 20;
  return all;
}

Options published(DiffusionPlannerPreset preset) {
  switch (preset) {
    case DiffusionPlannerPreset::h:
      return preset_h();
    case DiffusionPlannerPreset::m:
      return preset_m();
    case DiffusionPlannerPreset::up:
      return preset_up();
  }
  throw std::invalid_argument("diffusion_planner.preset is none of the enum's values");
}

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;

using OpenField = std::variant<std::optional<bool>, std::optional<int64_t>, std::optional<double>>;

/// What a preset decides, by field.
std::map<std::string, OpenField> open_fields(const Options& options) {
  std::map<std::string, OpenField> fields;
  Options::fields(options, [&](std::string_view name, const auto& value, const auto&...) {
    if constexpr (is_optional<std::remove_cvref_t<decltype(value)>>) fields.emplace(name, value);
  });
  return fields;
}

/// What is not given becomes what `from` says.
Options filled(Options options, const Options& from) {
  const std::map<std::string, OpenField> theirs = open_fields(from);
  Options::fields(options, [&](const std::string& name, auto& mine, const auto&...) {
    using Field = std::remove_cvref_t<decltype(mine)>;
    if constexpr (is_optional<Field>) {
      if (!mine) mine = std::get<Field>(theirs.at(name));
    }
  });
  return options;
}

class DiffusionPlannerChecker {
 public:
  explicit DiffusionPlannerChecker(const Options& options) : options_(options) {}

  std::vector<DiffusionPlannerProblem> run() {
    const Options from = published(options_.preset);
    if (options_.upstream()) check_use(from);
    options_ = filled(options_, from);
    check_ranges();
    if (found_.empty()) check_relations();
    return std::move(found_);
  }

 private:
  void add(const std::string& field, const std::string& message) { found_.push_back({field, message}); }

  // What the preset leaves open, and the two switches of what it does not read.
  void check_use(const Options& from) {
    const auto useless = [&](const std::string& field, const std::string& remedy) {
      add(field, "diffusion_planner." + field + " has no use with diffusion_planner.preset = \"" +
                     text(options_.preset) + "\"; " + remedy);
    };
    const std::map<std::string, OpenField> theirs = open_fields(from);
    Options::fields(options_, [&](const std::string& name, const auto& mine, const auto&...) {
      using Field = std::remove_cvref_t<decltype(mine)>;
      if constexpr (std::is_same_v<Field, bool>) {
        if (!mine && name.starts_with("use_")) useless(name, "set it to true");
      } else if constexpr (is_optional<Field>) {
        if (mine && !std::get<Field>(theirs.at(name))) useless(name, "remove it");
      }
    });
  }

  // Options made in code have passed no reader that knows the intervals of `fields`.
  void check_ranges() {
    Options::fields(options_, [&](const std::string& name, const auto& value, const auto&...) {
      using Field = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<Field, int64_t>) check_count(name, value);
      if constexpr (std::is_same_v<Field, std::optional<int64_t>>) {
        if (value) check_count(name, *value);
      }
      if constexpr (std::is_same_v<Field, double>) check_probability(name, value);
      if constexpr (std::is_same_v<Field, std::optional<double>>) {
        if (value) check_probability(name, *value);
      }
    });
  }

  void check_count(const std::string& field, int64_t value) {
    const int64_t lowest = field == "time_len" ? 2 : 1;
    if (value >= lowest && value <= kMaxCount) return;
    add(field, "diffusion_planner." + field + " = " + std::to_string(value) + " must be in [" +
                   std::to_string(lowest) + ", " + std::to_string(kMaxCount) + "]");
  }

  void check_probability(const std::string& field, double value) {
    if (value >= 0 && value < 1) return;
    add(field, "diffusion_planner." + field + " = " + text(value) + " must be in [0, 1)");
  }

  void check_relations() {
    const int64_t hidden = *options_.hidden_dim, heads = *options_.num_heads;
    if (hidden % heads != 0) {
      add("hidden_dim", "diffusion_planner.hidden_dim = " + std::to_string(hidden) +
                            " is not divisible by diffusion_planner.num_heads = " + std::to_string(heads) +
                            "; set diffusion_planner.hidden_dim = " + near_multiples(hidden, heads) +
                            ", or diffusion_planner.num_heads to a divisor of " + std::to_string(hidden));
    }
    const int64_t future = *options_.future_len;
    if (!options_.upstream() && future % kTurnStep != 0) {
      add("future_len", "diffusion_planner.future_len = " + std::to_string(future) +
                            " is not divisible by 10, which the turn indicator's head needs; set "
                            "diffusion_planner.future_len = " +
                            near_multiples(future, kTurnStep));
    }
    const int64_t predicted = *options_.predicted_neighbor_num, seen = *options_.agent_num;
    if (predicted > seen) {
      add("predicted_neighbor_num",
          "diffusion_planner.predicted_neighbor_num = " + std::to_string(predicted) +
              " is more than diffusion_planner.agent_num = " + std::to_string(seen) +
              ", the neighbours that are seen; " + "set it to at most " + std::to_string(seen) +
              ", or diffusion_planner.agent_num to at least " + std::to_string(predicted));
    }
  }

  Options options_;
  std::vector<DiffusionPlannerProblem> found_;
};

}  // namespace

std::vector<DiffusionPlannerProblem> problems(const DiffusionPlannerOptions& options) {
  return DiffusionPlannerChecker(options).run();
}

DiffusionPlannerOptions resolved(const DiffusionPlannerOptions& options) {
  const std::vector<DiffusionPlannerProblem> found = problems(options);
  if (!found.empty()) throw std::invalid_argument(found.front().message);
  return filled(options, published(options.preset));
}

int64_t DiffusionPlannerOptions::encoder_tokens() const {
  const Options all = resolved(*this);
  const int64_t seen = *all.agent_num + *all.static_objects_num + *all.lane_num;
  if (all.upstream()) return seen;
  constexpr int64_t single = 4;  // ego, goal, shape, turn indicator
  return single + seen + *all.route_num + *all.polygon_num + *all.line_string_num;
}

int64_t DiffusionPlannerOptions::decoder_tokens() const {
  return 1 + *resolved(*this).predicted_neighbor_num;
}

SceneShapes scene_shapes(const DiffusionPlannerOptions& options) {
  const Options all = resolved(options);
  const int64_t features = all.upstream() ? 12 : 33;
  SceneShapes shapes = {
      {"neighbor_agents_past", {*all.agent_num, *all.time_len, 11}},
      {"static_objects", {*all.static_objects_num, 10}},
      {"lanes", {*all.lane_num, *all.lane_len, features}},
      {"lanes_speed_limit", {*all.lane_num, 1}},
      {"lanes_has_speed_limit", {*all.lane_num, 1}},
      {"route_lanes", {*all.route_num, *all.route_len, features}},
  };
  if (all.upstream()) return shapes;
  shapes.insert(shapes.end(), {{"route_lanes_speed_limit", {*all.route_num, 1}},
                               {"route_lanes_has_speed_limit", {*all.route_num, 1}},
                               {"polygons", {*all.polygon_num, *all.polygon_len, 3}},
                               {"line_strings", {*all.line_string_num, *all.line_string_len, 4}},
                               {"ego_agent_past", {*all.time_len, 4}},
                               {"goal_pose", {4}},
                               {"turn_indicators", {*all.time_len}},
                               {"ego_shape", {3}}});
  return shapes;
}

}  // namespace dtk::models
