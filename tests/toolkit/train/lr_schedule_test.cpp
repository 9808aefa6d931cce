// The driving model's learning rate, and how the project's own optimizer and average fit its training.
#include "toolkit/train/lr_schedule.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/ema.h>

#include <string>
#include <utility>
#include <vector>

#include "support/diffusion_planner/golden.h"
#include "toolkit/train/optimizer.h"

using namespace dtk;
using test::largest;
using test::OriginalNumbers;

namespace {

// A run of 3 batches of 4 samples an epoch, as the trainer asks for its rates.
void check_rates(const OriginalNumbers& golden, const std::string& run, int64_t epochs,
                 const EpochScheduleOptions& schedule, int64_t resumed = 0) {
  INFO(run);
  const at::Tensor wanted = golden.at("lr." + run, at::kDouble);
  REQUIRE(wanted.numel() == epochs - resumed);
  RunConfig config;
  config.optimizer.lr = 1e-4;
  config.train.epochs = epochs;
  config.schedule.kind = ScheduleKind::epochs;
  config.epoch_schedule = schedule;
  for (int64_t sample = 12 * resumed; sample < 12 * epochs; sample += 4) {
    const RunPosition at = {.samples = sample, .samples_per_epoch = 12, .resumed = resumed};
    const double rate = wanted[sample / 12 - resumed].item<double>();
    CHECK(learning_rate(config, at) == Approx(rate).epsilon(1e-12));
    CHECK(run_progress(config.train, at) < 1.0);
  }
  const RunPosition end = {.samples = 12 * epochs, .samples_per_epoch = 12, .resumed = resumed};
  CHECK(run_progress(config.train, end) == 1.0);
  CHECK(learning_rate(config, end) == Approx(wanted[-1].item<double>()).epsilon(1e-12));
}

double rate_in(int64_t epoch, const EpochScheduleOptions& schedule, double lr, int64_t epochs,
               int64_t resumed = 0) {
  RunConfig config;
  config.optimizer.lr = lr;
  config.train.epochs = epochs;
  config.schedule.kind = ScheduleKind::epochs;
  config.epoch_schedule = schedule;
  return learning_rate(config, {.samples = 12 * epoch, .samples_per_epoch = 12, .resumed = resumed});
}

}  // namespace

TEST_CASE("diffusion_planner schedule: the rates of whole runs are the original's") {
  const OriginalNumbers golden;
  check_rates(golden, "epochs10_warmup5", 10, {.lowered = true});
  check_rates(golden, "epochs12_warmup5", 12, {.lowered = true});
  check_rates(golden, "epochs20_warmup5", 20, {.lowered = true});
}

TEST_CASE(
    "diffusion_planner schedule: a resumed run has the rates of one that was not, unless as in the "
    "original") {
  const OriginalNumbers golden;
  check_rates(golden, "resume_after2of20_warmup5", 20, {.lowered = true, .overshooting_resume = true}, 2);
  const EpochScheduleOptions schedule = {.lowered = true};
  for (int64_t epoch = 2; epoch < 20; ++epoch) {
    CHECK(rate_in(epoch, schedule, 1e-4, 20, 2) == rate_in(epoch, schedule, 1e-4, 20));
  }
}

TEST_CASE("diffusion_planner schedule: upstream's rate is not lowered") {
  EpochScheduleOptions schedule;
  CHECK(rate_in(499, schedule, 5e-4, 500) == 5e-4);
  CHECK(rate_in(2, schedule, 5e-4, 500) == Approx(5e-4 * 0.55));
  schedule.warmup = 1;
  CHECK(rate_in(0, schedule, 5e-4, 500) == 5e-4);
}

TEST_CASE("diffusion_planner schedule: AdamW with clipping makes the original's four steps") {
  const OriginalNumbers golden;
  OptimizerOptions options;
  options.weight_decay = 0.01, options.clip = 5;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const char* name : {"p1", "p2"}) {
    const at::Tensor begin = golden.at(std::string("adamw.in.") + name, at::kFloat).clone();
    parameters.emplace_back(name, begin.requires_grad_(true));
  }
  AdamW adamw(options, parameters);
  std::vector<at::Tensor> norms, first, second;
  for (int64_t step = 0; step < 4; ++step) {
    parameters[0].second.mutable_grad() = golden.at("adamw.in.grad1", at::kFloat)[step].clone();
    parameters[1].second.mutable_grad() = golden.at("adamw.in.grad2", at::kFloat)[step].clone();
    adamw.step(1e-4);
    norms.push_back(adamw.gradient_norm().clone());
    first.push_back(parameters[0].second.detach().clone());
    second.push_back(parameters[1].second.detach().clone());
  }
  golden.check("adamw.norm", at::stack(norms));
  golden.check("adamw.p1", at::stack(first));
  golden.check("adamw.p2", at::stack(second));
  // Clipping is within the update: the gradients stay, and the moments show what was clipped to.
  for (const NamedTensor& entry : adamw.state()) {
    for (const auto& [name, stored] :
         {std::pair("exp_avg.p1", "exp_avg1"), std::pair("exp_avg_sq.p1", "exp_avg_sq1")}) {
      if (entry.name != name) continue;
      const at::Tensor wanted = golden.at(std::string("adamw.") + stored, at::kFloat);
      CHECK(largest(entry.tensor - wanted) <= 1e-6 * largest(wanted));
    }
  }
}

TEST_CASE("diffusion_planner schedule: the average without warm-up is the original's") {
  const OriginalNumbers golden;
  const at::Tensor weight = golden.at("ema.w0", at::kFloat).clone().requires_grad_(true);
  policies::EmaOptions options;
  options.decay = 0.999, options.warmup = false, options.device = policies::EmaDevice::same;
  policies::Ema ema(options, {{"w", weight}});
  const at::Tensor after = golden.at("ema.w_after_each_step", at::kFloat);
  std::vector<at::Tensor> averages = {weight.detach().clone()};
  for (int64_t step = 0; step < after.size(0); ++step) {
    ema.before_step();
    {
      const at::NoGradGuard no_grad;
      weight.detach().copy_(after[step]);
    }
    ema.after_step();
    const auto exchange = ema.sampling_weights();
    averages.push_back(weight.detach().clone());
  }
  golden.check("ema.shadow", at::stack(averages));
}
