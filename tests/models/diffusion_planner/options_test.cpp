#include <dtk/models/diffusion_planner_options.h>

#include <limits>
#include <stdexcept>

#include "support/catch.h"
#include "support/diffusion_planner/preset.h"
#include "support/error_text.h"

using namespace dtk::models;
using dtk::test::diffusion_planner_preset;
using dtk::test::error_text;

namespace {

/// "field: message" of the only broken rule.
std::string only_problem(const DiffusionPlannerOptions& options) {
  const auto found = problems(options);
  if (found.size() != 1) return std::to_string(found.size()) + " problems";
  return found.front().field + ": " + found.front().message;
}

}  // namespace

TEST_CASE("diffusion_planner options: presets fill in what is not given") {
  const DiffusionPlannerOptions h = resolved(diffusion_planner_preset("H")),
                                m = resolved(diffusion_planner_preset("M")),
                                up = resolved(diffusion_planner_preset("UP"));
  CHECK(h.agent_num == 320);
  CHECK(h.predicted_neighbor_num == 320);
  CHECK(h.ego_history_dropout == 0.4);
  CHECK(h.mask_context == true);
  CHECK(h.oldest_ego_history == false);
  CHECK(m.agent_num == 32);
  CHECK(m.ego_history_dropout == 0.6);
  CHECK(m.mask_context == false);
  CHECK(m.oldest_ego_history == true);
  CHECK(up.hidden_dim == 192);
  CHECK(up.time_len == 21);
  CHECK_FALSE(up.polygon_num);
  CHECK_FALSE(up.mask_context);
  for (const DiffusionPlannerOptions& all : {h, m, up}) CHECK(resolved(all) == all);

  DiffusionPlannerOptions small = diffusion_planner_preset("M");
  small.hidden_dim = 64;
  small.lane_num = 7;
  CHECK(resolved(small).hidden_dim == 64);
  CHECK(resolved(small).num_heads == 8);
  CHECK(small.encoder_tokens() == 276 - 140 + 7);
}

TEST_CASE("diffusion_planner options: shapes of a scene are those of the data on disk") {
  const SceneShapes h = scene_shapes(diffusion_planner_preset("H")),
                    up = scene_shapes(diffusion_planner_preset("UP"));
  CHECK(h.size() == 14);
  CHECK(h[0] == std::pair<std::string, std::vector<int64_t>>{"neighbor_agents_past", {320, 31, 11}});
  CHECK(h[2] == std::pair<std::string, std::vector<int64_t>>{"lanes", {140, 20, 33}});
  CHECK(up.size() == 6);
  CHECK(up[2] == std::pair<std::string, std::vector<int64_t>>{"lanes", {70, 20, 12}});
}

TEST_CASE("diffusion_planner options: every broken rule says what to do") {
  DiffusionPlannerOptions options = diffusion_planner_preset("H");
  options.num_heads = 7;
  CHECK(only_problem(options) ==
        "hidden_dim: diffusion_planner.hidden_dim = 256 is not divisible by diffusion_planner.num_heads = 7; "
        "set "
        "diffusion_planner.hidden_dim = "
        "252 or 259, or diffusion_planner.num_heads to a divisor of 256");
  options = diffusion_planner_preset("M");
  options.future_len = 85;
  CHECK(only_problem(options) ==
        "future_len: diffusion_planner.future_len = 85 is not divisible by 10, which the turn indicator's "
        "head needs; "
        "set diffusion_planner.future_len = 80 or 90");
  options = diffusion_planner_preset("UP");
  options.future_len = 85;
  CHECK(problems(options).empty());
  options.predicted_neighbor_num = 33;
  CHECK(only_problem(options) ==
        "predicted_neighbor_num: diffusion_planner.predicted_neighbor_num = 33 is more than "
        "diffusion_planner.agent_num = 32, the "
        "neighbours that are seen; set it to at most 32, or diffusion_planner.agent_num to at least 33");
  options = diffusion_planner_preset("H");
  options.time_len = 1;
  CHECK(only_problem(options) == "time_len: diffusion_planner.time_len = 1 must be in [2, 65536]");
  options = diffusion_planner_preset("H");
  options.mixer_tokens = 0;
  CHECK(only_problem(options) == "mixer_tokens: diffusion_planner.mixer_tokens = 0 must be in [1, 65536]");
  options = diffusion_planner_preset("H");
  options.ego_history_dropout = 1;
  CHECK(only_problem(options) ==
        "ego_history_dropout: diffusion_planner.ego_history_dropout = 1 must be in [0, 1)");
  options = diffusion_planner_preset("H");
  options.encoder_dropout = std::numeric_limits<double>::quiet_NaN();
  CHECK(only_problem(options) ==
        "encoder_dropout: diffusion_planner.encoder_dropout = nan must be in [0, 1)");
  CHECK(error_text<std::invalid_argument>([&] { resolved(options); }) ==
        "diffusion_planner.encoder_dropout = nan must be in [0, 1)");
}

TEST_CASE("diffusion_planner options: what UP has no use for is refused") {
  DiffusionPlannerOptions options = diffusion_planner_preset("UP");
  options.polygon_num = 10;
  CHECK(only_problem(options) ==
        "polygon_num: diffusion_planner.polygon_num has no use with diffusion_planner.preset = \"UP\"; "
        "remove it");
  options = diffusion_planner_preset("UP");
  options.mask_context = false;
  CHECK(only_problem(options) ==
        "mask_context: diffusion_planner.mask_context has no use with diffusion_planner.preset = \"UP\"; "
        "remove it");
  options = diffusion_planner_preset("UP");
  options.sequence_first_attention = true;
  CHECK(problems(options).empty());
  options.use_turn_indicators = false;
  options.ego_history_dropout = 0.1;
  const auto found = problems(options);
  REQUIRE(found.size() == 2);
  CHECK(found[0].field == "ego_history_dropout");
  CHECK(found[1].message ==
        "diffusion_planner.use_turn_indicators has no use with diffusion_planner.preset = \"UP\"; set it to "
        "true");
}
