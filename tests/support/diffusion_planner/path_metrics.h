// Sums of batches, added up as a validation does it.
#pragma once
#include <ATen/ATen.h>
#include <dtk/policies/simulation.h>

#include "toolkit/families/diffusion_planner/metrics.h"

namespace dtk::test {

class PathMetrics {
 public:
  void add(const at::Tensor& prediction, const at::Tensor& logits,
           const diffusion_planner::Outcome& outcome) {
    sums_ = sums_ + diffusion_planner::path_sums(prediction, logits, outcome, {}).cpu();
  }
  diffusion_planner::PathScores scores_sync() const {
    return diffusion_planner::path_scores(policies::values_sync(sums_));
  }

 private:
  at::Tensor sums_ = at::zeros({diffusion_planner::kPathSums}, at::kDouble);
};

}  // namespace dtk::test
