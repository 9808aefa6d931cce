// The driving model's validation against the original's, in its batches and in others.
#include "toolkit/families/diffusion_planner/metrics.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "support/diffusion_planner/golden.h"
#include "support/diffusion_planner/path_metrics.h"
#include "toolkit/families/diffusion_planner/inputs.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::OriginalNumbers;

namespace {

struct Stored {
  Stored(const OriginalNumbers& golden, at::ScalarType type) {
    const auto raw = [&](const char* name) { return golden.at(std::string("valid.raw.") + name, type); };
    prediction = golden.at("valid.prediction", type);
    logits = golden.at("valid.turn_indicator_logit", type);
    const Futures futures = futures_of(raw("ego_agent_future"), raw("neighbor_agents_future"));
    outcome.ego_future = futures.ego;
    outcome.neighbors_future = futures.neighbors;
    outcome.absent = futures.neighbor_mask;
    outcome.turn_indicators = raw("turn_indicators");
    outcome.ego_shape = raw("ego_shape");
    outcome.line_strings = raw("line_strings");
    outcome.neighbors_now = raw("neighbor_agents_past").select(2, 0);
  }

  PathScores scores(const std::vector<int64_t>& batches) const {
    test::PathMetrics metrics;
    int64_t first = 0;
    for (const int64_t batch : batches) {
      const auto some = [&](const at::Tensor& all) { return all.narrow(0, first, batch); };
      metrics.add(some(prediction), some(logits),
                  {some(outcome.ego_future), some(outcome.neighbors_future), some(outcome.absent),
                   some(outcome.turn_indicators), some(outcome.ego_shape), some(outcome.line_strings),
                   some(outcome.neighbors_now)});
      first += batch;
    }
    return metrics.scores_sync();
  }

  at::Tensor prediction, logits;
  Outcome outcome;
};

}  // namespace

TEST_CASE("diffusion_planner metrics: each metric of each step is the original's") {
  const OriginalNumbers golden;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Stored stored(golden, type);
    const EgoMetrics metrics = ego_metrics(stored.prediction, stored.outcome, {});
    EgoMetrics::fields(metrics, [&](const char* name, const at::Tensor& values) {
      golden.check(std::string("valid.per_step.") + name, values);
    });
  }
  CHECK(golden.checked() == 2 * 8);
}

TEST_CASE(
    "diffusion_planner metrics: the scores of a run are the original's, however it is cut into batches") {
  const OriginalNumbers golden;
  const auto& all = golden.notes()["validation"];
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Stored stored(golden, type);
    const auto& metrics = all[type == at::kDouble ? "metrics_fp64" : "metrics"];
    const double epsilon = type == at::kDouble ? 1e-9 : 2e-6;
    for (const auto& batches : std::vector<std::vector<int64_t>>{{3, 2}, {5}, {1, 4}}) {
      const PathScores scores = stored.scores(batches);
      const auto close = [&](double value, const nlohmann::json& wanted) {
        CHECK(value == Approx(wanted.get<double>()).epsilon(epsilon).margin(1e-8));
      };
      const auto& ego = metrics["ego_means"];
      close(scores.ego_simple_l2, ego["ego_simple_l2_loss"]);
      close(scores.ego_simple_l2, metrics["avg_loss_ego"]);
      close(scores.ego_position_l2, ego["ego_position_l2_loss"]);
      close(scores.ego_heading_l2, ego["ego_heading_l2_loss"]);
      close(scores.ego_lateral, ego["ego_position_lat_loss"]);
      close(scores.ego_longitudinal, ego["ego_position_lon_loss"]);
      close(scores.ego_cosine_similarity, ego["ego_cosine_similarity_loss"]);
      close(scores.ego_neighbor_margin, ego["ego_neighbor_margin_loss"]);
      close(scores.ego_road_border, ego["ego_road_border_loss"]);
      close(scores.neighbor, metrics["avg_loss_neighbor"]);
      close(scores.turn_accuracy, metrics["turn_indicator_accuracy"]);
      close(scores.turn_change_accuracy, metrics["turn_indicator_change_accuracy"]);
      CHECK(scores.turn_changes == metrics["turn_indicator_change_total"].get<int64_t>());
      CHECK(scores.samples == 5);
    }
  }
}

TEST_CASE("diffusion_planner metrics: of nothing, the scores are 0") {
  const PathScores scores = test::PathMetrics().scores_sync();
  CHECK(scores.samples == 0);
  CHECK(scores.ego_lateral == 0);
  const OriginalNumbers golden;
  Stored stored(golden, at::kFloat);
  stored.outcome.absent = at::ones_like(stored.outcome.absent);
  stored.outcome.turn_indicators = at::zeros_like(stored.outcome.turn_indicators);
  CHECK(stored.scores({5}).neighbor == 0);
  CHECK(stored.scores({5}).turn_change_accuracy == 0);
}

TEST_CASE(
    "diffusion_planner metrics: what upstream's data and model lack is not measured, all else is as with "
    "it") {
  const OriginalNumbers golden;
  Stored stored(golden, at::kDouble);
  const PathScores whole = stored.scores({3, 2});
  Outcome& outcome = stored.outcome;
  const auto score = [&] {
    test::PathMetrics metrics;
    metrics.add(stored.prediction, stored.logits, outcome);
    return metrics.scores_sync();
  };
  outcome.line_strings.reset();
  CHECK(score().ego_road_border == 0);
  CHECK(score().ego_neighbor_margin == Approx(whole.ego_neighbor_margin));
  REQUIRE(whole.ego_road_border > 0);
  REQUIRE(whole.ego_neighbor_margin > 0);
  outcome.ego_shape.reset();
  outcome.turn_indicators.reset();
  stored.logits.reset();
  const PathScores less = score();
  CHECK(less.ego_neighbor_margin == 0);
  CHECK(less.turn_accuracy == 0);
  CHECK(less.turn_changes == 0);
  CHECK(less.ego_lateral == Approx(whole.ego_lateral));
  CHECK(less.neighbor == Approx(whole.neighbor));
  CHECK(less.samples == whole.samples);
}
