// Trains the forum's network for a few steps, or runs the same code where nothing is computed, and says what
// it kept and took.
#pragma once
#include <dtk/planner/explain.h>
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "forum_cnn/adam.h"
#include "forum_cnn/network.h"

namespace examples {

struct Job {
  NetworkShape shape;
  Variant variant = Variant::plain;
  AdamForm optimizer = AdamForm::single;
};

struct Outcome {
  std::vector<dtk::policies::PhasePeak> phases;            // bytes of tensors without the scratch of kernels
  int64_t saved_bytes = 0;                                 // kept for backward, parameters apart
  int64_t parameters = 0;                                  // numbers
  int64_t gradients_received = 0, gradients_expected = 0;  // parameters
  std::vector<float> losses;                               // of each step; none in a plan
};

/// Three steps: MSE on random data, gradients kept and zeroed between steps.
Outcome measure(const Job& job);
/// The same steps by dtk::planner under the rules of the CPU: takes none of the memory. Throws
/// dtk::planner::PlanError.
Outcome plan(const Job& job);
/// Why the job's variant saves what it saves; of `plain` for each operator as a segment. `others`: planned
/// beside it.
dtk::planner::Explanation explain(const Job& job, const std::vector<std::pair<std::string, Job>>& others);

}  // namespace examples
