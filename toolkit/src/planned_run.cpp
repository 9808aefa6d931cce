#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/rehearsal.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/model_policies.h>
#include <dtk/toolkit/planned_run.h>
#include <dtk/toolkit/policy_places.h>
#include <dtk/toolkit/run.h>
#include <dtk/toolkit/synthetic_source.h>

#include "planned_world.h"

namespace dtk {
namespace {

// What repeats needs to be run twice only; more steps than this would take longer than a plan should.
constexpr int64_t kMostPeriod = 100;

// Steps after the first that show twice what the policies do.
int64_t steady_steps(const RunConfig& config, c10::Device device) {
  models::Dit model(config.model, device, policies::make_generator(device, 0));
  const int64_t period = put_policies_in(config.policies, model).period();
  if (period <= kMostPeriod) return 2 * period;
  throw ConfigError("the policies repeat their work after " + std::to_string(period) +
                    " steps, and a plan runs at most " + std::to_string(kMostPeriod) +
                    " of them, twice; plan with --set policies.ema.every=" + std::to_string(kMostPeriod) +
                    " or less");
}

// A job as short as that already stays as it is.
RunConfig shortened(RunConfig config, int64_t steady) {
  const int64_t steps = 1 + steady + (config.data.drop_last ? 0 : 1);
  config.train.log_every = 1;
  config.train.init_from.clear();  // weights of a file take no more than drawn ones
  if (config.train.steps && *config.train.steps <= steps && !config.train.seconds) return config;
  config.train.steps = steps;
  config.train.seconds.reset();
  for (int64_t* every :
       {&config.train.checkpoint_every, &config.train.sample_every, &config.train.validate_every})
    if (*every > 0) *every = steady;
  return config;
}

int64_t samples_of_an_epoch(const RunConfig& config, int64_t steady) {
  const int64_t whole = (1 + steady) * config.data.batch;
  if (config.data.drop_last) return whole;
  const int64_t rest = config.data.samples
                           ? (*config.data.samples - config.data.validation) % config.data.batch
                           : config.data.batch - 1;
  return whole + rest;
}

// The job of a plan. `Data`: of its samples, by the model and their number.
template <class Data>
void run_job(const LoadedConfig& loaded, c10::Device device, const Data& data_of,
             const planner::EndOfPlan& end) {
  LoadedConfig job = loaded;
  const int64_t steady = steady_steps(loaded.config, device);
  job.config = shortened(loaded.config, steady);
  const std::shared_ptr<const DataSource> data =
      data_of(job.config.model, samples_of_an_epoch(job.config, steady) + job.config.data.validation);
  NoFiles files;
  StandingClock clock;
  PlanObserver observer(end);
  run_training(job, device, {}, data, {files, clock, observer, [&] { return observer.ended(); }});
}

std::shared_ptr<const DataSource> no_values(const models::DitOptions& model, int64_t samples) {
  return std::make_shared<PlannedData>(model, samples);
}

std::shared_ptr<const DataSource> made_up(const models::DitOptions& model, int64_t samples) {
  return std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{samples, model.channels, model.image_size, model.image_size, model.classes});
}

// Computes, and waits for threads as a plan does.
class WholeJob final : public policies::Rehearsal {
  std::unique_ptr<policies::PassFold> fold(std::string_view) override { return nullptr; }
};

}  // namespace

planner::Rehearsed plan_run(const LoadedConfig& loaded, c10::Device device,
                            const planner::RehearsalOptions& options) try {
  return planner::rehearse(
      device, [&](const planner::EndOfPlan& end) { run_job(loaded, device, no_values, end); }, options);
} catch (const policies::PolicyError& error) {
  throw with_place(error, loaded.places);
}

planner::Rehearsed rehearse_what_is_planned(const LoadedConfig& loaded, const std::function<void()>& at_end,
                                            const planner::RehearsalOptions& options) {
  const auto job = [&](const planner::EndOfPlan& end) {
    const auto both = [&] {
      at_end();
      end();
    };
    run_job(loaded, c10::kCPU, no_values, both);
  };
  return planner::rehearse(c10::kCPU, job, options);
}

void run_what_is_planned(const LoadedConfig& loaded, const std::function<void()>& at_end) {
  WholeJob whole;
  const policies::RehearsalGuard guard(whole);
  const policies::CountingAllocatorGuard counting;
  run_job(loaded, c10::kCPU, made_up, at_end);
}

}  // namespace dtk
