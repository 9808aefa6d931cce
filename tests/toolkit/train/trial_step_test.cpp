// A trial step costs what a training step costs and leaves nothing behind.
#include "toolkit/train/trial_step.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include "support/catch.h"
#include "support/runs/random_state.h"
#include "support/runs/tiny_run.h"
#include "toolkit/families/dit/trainable.h"

using namespace dtk;

namespace {

dit::TrainableDit tiny_model(const RunConfig& config = test::tiny_config()) {
  return dit::TrainableDit(config, at::kCPU, policies::make_generator(at::kCPU, 3));
}

using test::random_state;

}  // namespace

TEST_CASE("trial step: weights, gradients, the model's seam, random state and live bytes are as before") {
  const policies::CountingAllocatorGuard counting;
  const policies::SavedTensorEngineGuard engine;
  const std::string objective = GENERATE("rectified_flow", "epsilon", "v", "x0");
  CAPTURE(objective);
  const RunConfig config = test::tiny_config(objective);
  dit::TrainableDit model = tiny_model(config);
  int own_runs = 0;
  model.seam().run = [&own_runs](std::string_view, const models::ModuleFn& fn, models::Tensors&& inputs) {
    ++own_runs;
    return fn(std::move(inputs));
  };
  std::vector<at::Tensor> before;
  for (const auto& [name, parameter] : model.parameters()) before.push_back(parameter.clone());
  at::manual_seed(7);
  const std::string random = random_state();
  const int64_t bytes = policies::cpu_accounts().live_bytes();
  {
    TrialStep step(config, model, config.policies, 4);
    step.run();
    step.run();
  }
  CHECK(policies::cpu_accounts().live_bytes() == bytes);
  CHECK(random_state() == random);
  CHECK(own_runs == 0);
  CHECK(model.seam().policies.empty());
  for (size_t i = 0; i < before.size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    INFO(name);
    CHECK(at::equal(parameter, before[i]));
    CHECK_FALSE(parameter.grad().defined());
  }
}

TEST_CASE("trial step: it runs under the policies that it was given, not those of the configuration") {
  const policies::SavedTensorEngineGuard engine;
  RunConfig config = test::tiny_config();
  config.policies.precision.fp32 = {"no such end"};
  const dit::TrainableDit model = tiny_model();
  CHECK_THROWS_AS(TrialStep(config, model, config.policies, 4), policies::PolicyError);
  CHECK_NOTHROW(TrialStep(config, model, {}, 4).run());
  config.policies = {};
  config.policies.ema.enabled = policies::Enabled::on;  // would be refused on the CPU
  CHECK_NOTHROW(TrialStep(config, model, config.policies, 4).run());
}

TEST_CASE("trial step: every micro-batch size has its own peak") {
  const policies::CountingAllocatorGuard counting;
  const policies::SavedTensorEngineGuard engine;
  const RunConfig config = test::tiny_config();
  const dit::TrainableDit model = tiny_model();
  const auto peak = [&](int64_t batch) {
    policies::cpu_accounts().reset_phases("trial");
    TrialStep(config, model, config.policies, batch).run();
    return policies::highest(policies::cpu_accounts().phases()).peak.bytes;
  };
  const int64_t one = peak(1), two = peak(2);
  CHECK(two > one);
  CHECK(peak(1) == one);
  CHECK(peak(2) == two);
}
