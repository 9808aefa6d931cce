// A process that has used LibTorch before it plans.
#include <ATen/ATen.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/memory_accounts.h>

#include "support/catch.h"

using namespace dtk;

TEST_CASE("simulate: whoever asked for CUDA before is told what to call first") {
  at::manual_seed(1);
  CHECK_THROWS_WITH(
      planner::simulate(c10::Device("cuda:0"), [](const planner::EndOfPlan&) {}),
      "this process asked LibTorch for CUDA before there was a simulated device, as "
      "at::manual_seed() and a first backward pass do, and LibTorch keeps the answer that there is "
      "none; call planner::register_simulated_devices() first of all in main()");
  const auto plan = planner::simulate(at::kCPU, [](const planner::EndOfPlan& end) {
    const at::Tensor some = at::empty({256});
    end();
  });
  CHECK(policies::highest(plan.device).peak.bytes == 1024);
}
