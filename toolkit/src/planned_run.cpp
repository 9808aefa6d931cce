#include <dtk/toolkit/planned_run.h>
#include <dtk/toolkit/run.h>

#include "planned_world.h"

namespace dtk {
namespace {

// Steps whose memory repeats need to be run twice only.
constexpr int64_t kSteadySteps = 2;

RunConfig shortened(RunConfig config) {
  const int64_t steps = 1 + kSteadySteps + (config.data.drop_last ? 0 : 1);
  config.train.steps = steps;
  config.train.seconds.reset();
  config.train.log_every = 1;
  for (int64_t* every :
       {&config.train.checkpoint_every, &config.train.sample_every, &config.train.validate_every})
    if (*every > 0) *every = kSteadySteps;
  config.train.init_from.clear();  // weights of a file take no more than drawn ones
  return config;
}

int64_t samples_of_an_epoch(const RunConfig& config) {
  const int64_t whole = (1 + kSteadySteps) * config.data.batch;
  if (config.data.drop_last) return whole;
  const int64_t rest = config.data.samples
                           ? (*config.data.samples - config.data.validation) % config.data.batch
                           : config.data.batch - 1;
  return whole + rest;
}

}  // namespace

planner::Rehearsed plan_run(const LoadedConfig& loaded, c10::Device device,
                            const planner::RehearsalOptions& options) {
  LoadedConfig planned = loaded;
  planned.config = shortened(loaded.config);
  const auto data = std::make_shared<PlannedData>(
      planned.config.model, samples_of_an_epoch(planned.config) + planned.config.data.validation);
  return planner::rehearse(
      device,
      [&](const planner::EndOfPlan& end) {
        NoFiles files;
        StandingClock clock;
        PlanObserver observer(end);
        run_training(planned, device, {}, data, {files, clock, observer, [&] { return observer.ended(); }});
      },
      options);
}

}  // namespace dtk
