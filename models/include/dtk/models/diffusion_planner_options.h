// Sizes of the driving model Diffusion-Planner, free of LibTorch so that configuration code stays quick to
// compile.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtk::models {

/// A published model: `h` and `m` are two states of the fork that Autoware drives by, `up` is the
/// model as first published.
enum class DiffusionPlannerPreset { h, m, up };
constexpr auto enum_texts(DiffusionPlannerPreset) {
  return std::array{"H", "M", "UP"};
}

/// `preset` says what the model computes, and every size that is not given. Fields that `up` has no use for
/// must be left as they are.
struct DiffusionPlannerOptions {
  DiffusionPlannerPreset preset = DiffusionPlannerPreset::h;
  std::optional<int64_t> hidden_dim;  // D
  std::optional<int64_t> num_heads;
  std::optional<int64_t> encoder_mixer_depth;
  std::optional<int64_t> encoder_fusion_depth;
  std::optional<int64_t> decoder_depth;
  int64_t mixer_tokens = 64;
  int64_t mixer_channels = 128;
  std::optional<int64_t> time_len;
  std::optional<int64_t> future_len;  // T
  std::optional<int64_t> agent_num;
  std::optional<int64_t> predicted_neighbor_num;
  std::optional<int64_t> static_objects_num;
  std::optional<int64_t> lane_num, lane_len;
  std::optional<int64_t> route_num, route_len;
  std::optional<int64_t> polygon_num, polygon_len;
  std::optional<int64_t> line_string_num, line_string_len;
  double encoder_dropout = 0.1;
  double decoder_dropout = 0.1;
  std::optional<double> ego_history_dropout;
  bool use_ego_history = true;
  bool use_turn_indicators = true;
  // Of the ego's past the six oldest steps are seen, as in M, which so drops the current one. false: the six
  // latest. Not UP.
  std::optional<bool> oldest_ego_history;
  // Encodings of absent objects are 0 and the decoder does not attend to them, as in H. Not UP.
  std::optional<bool> mask_context;
  // Attention copies to (L, N, D) and back as the published code does, and so keeps more for backward: two
  // copies of its tokens, one of the context. For comparisons of bytes with it; the results are the same.
  bool sequence_first_attention = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [preset, hidden_dim, num_heads, encoder_mixer_depth, encoder_fusion_depth, decoder_depth,
           mixer_tokens, mixer_channels, time_len, future_len, agent_num, predicted_neighbor_num,
           static_objects_num, lane_num, lane_len, route_num, route_len, polygon_num, polygon_len,
           line_string_num, line_string_len, encoder_dropout, decoder_dropout, ego_history_dropout,
           use_ego_history, use_turn_indicators, oldest_ego_history, mask_context, sequence_first_attention] =
        self;
    const char* const count = "[1, 65536]";
    visit("preset", preset, "", "which published model: what it computes, and each size that is not set");
    visit("hidden_dim", hidden_dim, count, "width of a token, divisible by num_heads");
    visit("num_heads", num_heads, count, "of attention");
    visit("encoder_mixer_depth", encoder_mixer_depth, count, "mixer blocks in each encoder of sequences");
    visit("encoder_fusion_depth", encoder_fusion_depth, count, "transformer blocks over all objects");
    visit("decoder_depth", decoder_depth, count, "blocks of the decoder");
    visit("mixer_tokens", mixer_tokens, count, "width of a mixer's MLP over tokens");
    visit("mixer_channels", mixer_channels, count, "width of a mixer's MLP over channels");
    visit("time_len", time_len, "[2, 65536]", "steps of the past of 0.1 s, with the current one");
    visit("future_len", future_len, count, "steps of the future of 0.1 s; divisible by 10, but for UP");
    visit("agent_num", agent_num, count, "neighbours that are seen");
    visit("predicted_neighbor_num", predicted_neighbor_num, count,
          "neighbours that are predicted, the first of those that are seen");
    visit("static_objects_num", static_objects_num, count, "static objects that are seen");
    visit("lane_num", lane_num, count, "lanes that are seen");
    visit("lane_len", lane_len, count, "points of a lane");
    visit("route_num", route_num, count, "lanes of the route that are seen");
    visit("route_len", route_len, count, "points of a lane of the route");
    visit("polygon_num", polygon_num, count, "polygons of the map; not of UP");
    visit("polygon_len", polygon_len, count, "points of a polygon; not of UP");
    visit("line_string_num", line_string_num, count,
          "line strings of the map, such as road borders; not of UP");
    visit("line_string_len", line_string_len, count, "points of a line string; not of UP");
    visit("encoder_dropout", encoder_dropout, "[0, 1)",
          "in training; also how probably a sample skips a branch of a fusion block");
    visit("decoder_dropout", decoder_dropout, "[0, 1)", "of attention's weights, in training");
    visit("ego_history_dropout", ego_history_dropout, "[0, 1)", "of the ego's token, in training; not of UP");
    visit("use_ego_history", use_ego_history, "", "false: the ego's past is all zero; not of UP");
    visit("use_turn_indicators", use_turn_indicators, "",
          "false: the past of the turn indicators is all zero; not of UP");
    visit("oldest_ego_history", oldest_ego_history, "",
          "see the six oldest steps of the ego's past, as M does, and not the latest; not of UP");
    visit("mask_context", mask_context, "",
          "encodings of absent objects are 0 and not attended to, as in H; not of UP");
    visit("sequence_first_attention", sequence_first_attention, "",
          "copy tokens as the published code does: more is saved, the result is the same");
  }
  friend bool operator==(const DiffusionPlannerOptions&, const DiffusionPlannerOptions&) = default;

  bool upstream() const { return preset == DiffusionPlannerPreset::up; }
  int64_t encoder_tokens() const;  ///< objects of a scene; throws as resolved()
  int64_t decoder_tokens() const;  ///< P: the ego and the predicted neighbours; throws as resolved()
};

/// What each transformer and decoder block offers to Seam::keep, in order.
inline constexpr std::array<const char*, 3> diffusion_planner_kept_results = {"attn_out", "proj_out",
                                                                              "fc2_out"};

/// A rule of DiffusionPlannerOptions that is broken: which field, and what to do.
struct DiffusionPlannerProblem {
  std::string field;
  std::string message;
};
/// Every broken rule, in field order; empty if a model can be built.
std::vector<DiffusionPlannerProblem> problems(const DiffusionPlannerOptions& options);

/// `options` with what the preset says filled in; resolving the result again changes nothing. Throws
/// std::invalid_argument with the first of problems(options).
DiffusionPlannerOptions resolved(const DiffusionPlannerOptions& options);

/// Key and shape, without the batch, of every tensor that the model reads of a scene. Throws as resolved().
using SceneShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
SceneShapes scene_shapes(const DiffusionPlannerOptions& options);

}  // namespace dtk::models
