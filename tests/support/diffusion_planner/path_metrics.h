// Sums of batches, added up as a validation does it.
#pragma once
#include <ATen/ATen.h>
#include <dtk/policies/simulation.h>

#include <vector>

#include "toolkit/families/diffusion_planner/metrics.h"

namespace dtk::test {

class PathMetrics {
 public:
  void add(const at::Tensor& prediction, const at::Tensor& logits,
           const diffusion_planner::Outcome& outcome) {
    const at::Tensor sums = diffusion_planner::path_sums(prediction, logits, outcome, {});
    sums_ = sums_.defined() ? sums_ + sums : sums;
  }
  diffusion_planner::PathScores scores_sync() const {
    if (!sums_.defined()) return diffusion_planner::path_scores(std::vector<double>(kSums));
    return diffusion_planner::path_scores(policies::values_sync(sums_));
  }

 private:
  static constexpr size_t kSums = diffusion_planner::kPathSums;
  at::Tensor sums_;  // undefined before the first batch
};

}  // namespace dtk::test
