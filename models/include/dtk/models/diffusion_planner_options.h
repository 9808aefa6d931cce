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

/// The preset that is the model as first published.
inline constexpr char kUpstreamPreset[] = "UP";

/// `preset` says which published model this is: what it computes, and every size that is not given. "H" and
/// "M" are two states of the fork whose planner drives in Autoware, "UP" is the model as first published.
/// Fields that "UP" has no use for must be left as they are.
struct DiffusionPlannerOptions {
  std::string preset = "H";
  std::optional<int64_t> hidden_dim;  // D, divisible by num_heads
  std::optional<int64_t> num_heads;
  std::optional<int64_t> encoder_mixer_depth;   // mixer blocks in each encoder of sequences
  std::optional<int64_t> encoder_fusion_depth;  // transformer blocks over all objects
  std::optional<int64_t> decoder_depth;
  int64_t mixer_tokens = 64;
  int64_t mixer_channels = 128;
  std::optional<int64_t> time_len;                // steps of the past, the current one included; 0.1 s each
  std::optional<int64_t> future_len;              // T, steps of the future
  std::optional<int64_t> agent_num;               // neighbours that are seen
  std::optional<int64_t> predicted_neighbor_num;  // the first of them, which are predicted
  std::optional<int64_t> static_objects_num;
  std::optional<int64_t> lane_num, lane_len;
  std::optional<int64_t> route_num, route_len;
  std::optional<int64_t> polygon_num, polygon_len;          // not UP
  std::optional<int64_t> line_string_num, line_string_len;  // not UP
  double encoder_dropout = 0.1;  // also the probability that a sample skips a branch of a fusion block
  double decoder_dropout = 0.1;  // of attention weights only
  std::optional<double> ego_history_dropout;  // of the ego's token; not UP
  bool use_ego_history = true;                // false: the ego's past is all zero; not UP
  bool use_turn_indicators = true;            // false: their past is all zero; not UP
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
    visit("preset", preset, "H | M | UP");
    visit("hidden_dim", hidden_dim, count);
    visit("num_heads", num_heads, count);
    visit("encoder_mixer_depth", encoder_mixer_depth, count);
    visit("encoder_fusion_depth", encoder_fusion_depth, count);
    visit("decoder_depth", decoder_depth, count);
    visit("mixer_tokens", mixer_tokens, count);
    visit("mixer_channels", mixer_channels, count);
    visit("time_len", time_len, "[2, 65536]");
    visit("future_len", future_len, count);
    visit("agent_num", agent_num, count);
    visit("predicted_neighbor_num", predicted_neighbor_num, count);
    visit("static_objects_num", static_objects_num, count);
    visit("lane_num", lane_num, count);
    visit("lane_len", lane_len, count);
    visit("route_num", route_num, count);
    visit("route_len", route_len, count);
    visit("polygon_num", polygon_num, count);
    visit("polygon_len", polygon_len, count);
    visit("line_string_num", line_string_num, count);
    visit("line_string_len", line_string_len, count);
    visit("encoder_dropout", encoder_dropout, "[0, 1)");
    visit("decoder_dropout", decoder_dropout, "[0, 1)");
    visit("ego_history_dropout", ego_history_dropout, "[0, 1)");
    visit("use_ego_history", use_ego_history, "");
    visit("use_turn_indicators", use_turn_indicators, "");
    visit("oldest_ego_history", oldest_ego_history, "");
    visit("mask_context", mask_context, "");
    visit("sequence_first_attention", sequence_first_attention, "");
  }
  friend bool operator==(const DiffusionPlannerOptions&, const DiffusionPlannerOptions&) = default;

  bool upstream() const { return preset == kUpstreamPreset; }
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
