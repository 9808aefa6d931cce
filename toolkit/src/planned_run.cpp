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

// Steps that show once what the policies do.
int64_t period_of(const RunConfig& config, c10::Device device) {
  models::Dit model(config.model, device, policies::make_generator(device, 0));
  const int64_t period = put_policies_in(config.policies, model).period();
  if (period <= kMostPeriod) return period;
  throw Error(ExitCode::failure, "the policies repeat their work after " + std::to_string(period) +
                                     " steps, and a plan runs at most " + std::to_string(kMostPeriod) +
                                     " of them, twice; plan with --set policies.ema.every=" +
                                     std::to_string(kMostPeriod) + " or less");
}

// How often the job of a plan runs the period of the policies after its first step.
enum class Steady { once, twice };

// A job as short as that already stays as it is.
bool is_short(const RunConfig& config, int64_t steps) {
  return config.train.steps && *config.train.steps <= steps && !config.train.seconds;
}

// Whole batches that show an epoch: with the loader full of whole ones in the first and all steady steps.
int64_t most_whole_batches(const RunConfig& config, int64_t steady) {
  const int64_t micro = config.train.accumulate;
  return 1 + steady + (config.data.drop_last ? 0 : (config.data.prefetch + micro - 1) / micro);
}

RunConfig shortened(RunConfig config, Steady times, int64_t steady) {
  const int64_t steps = most_whole_batches(config, steady) + (config.data.drop_last ? 0 : 1);
  config.train.log_every = 1;
  config.train.init_from.clear();  // weights of a file take no more than drawn ones
  if (is_short(config, steps)) return config;
  config.train.steps = steps;
  config.train.seconds.reset();
  for (int64_t* every :
       {&config.train.checkpoint_every, &config.train.sample_every, &config.train.validate_every})
    if (*every > 0) *every = times == Steady::once ? steps : steady;
  return config;
}

// All of the job's data set. An epoch of it is the job's own where it is as short, so that the loader is
// ahead in it as in the job; else it ends with the same last batch.
int64_t samples_of_a_plan(const RunConfig& config, int64_t steady) {
  const int64_t batch = config.data.batch, whole = most_whole_batches(config, steady) * batch;
  const int64_t last = config.data.drop_last ? 0 : batch - 1;
  if (!config.data.samples) return config.data.validation + whole + last;
  const int64_t samples = *config.data.samples - config.data.validation;
  return samples < whole + batch ? *config.data.samples : config.data.validation + whole + samples % batch;
}

// The job of a plan; `end` is called at its end, with whether more steady steps would only repeat it, or
// there are none. `Data`: of its samples, by the model and their number.
template <class Data>
void run_job(const LoadedConfig& loaded, c10::Device device, Steady times, const Data& data_of,
             const std::function<void(bool complete, const RunResult&)>& end) {
  LoadedConfig job = loaded;
  const int64_t steady = period_of(loaded.config, device) * (times == Steady::once ? 1 : 2);
  job.config = shortened(loaded.config, times, steady);
  const std::shared_ptr<const DataSource> data =
      data_of(job.config.model, samples_of_a_plan(loaded.config, steady));
  const bool whole = is_short(loaded.config, *job.config.train.steps);
  NoFiles files;
  StandingClock clock;
  PlanObserver observer([&](bool repeats, const RunResult& result) { end(whole || repeats, result); });
  run_training(job, device, {}, data, {files, clock, observer, [&] { return observer.ended(); }});
}

std::shared_ptr<const DataSource> no_values(const models::DitOptions& model, int64_t samples) {
  return std::make_shared<PlannedData>(model, samples);
}

std::shared_ptr<const DataSource> made_up(const models::DitOptions& model, int64_t samples) {
  return std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{samples, model.channels, model.image_size, model.image_size, model.classes});
}

// A second pass through the period of the policies is left out like passes of a loop: if the first one, and
// what comes after the last step, ended with the books it began with. Those of a job whose last batch is
// shorter never do.
PlannedRun rehearse_job(const LoadedConfig& loaded, c10::Device device,
                        const planner::RehearsalOptions& options, const std::function<void()>& at_end) {
  bool complete = false;
  PlannedRun planned;
  const auto rehearsed = [&](Steady times) {
    const auto job = [&](const planner::EndOfPlan& end) {
      run_job(loaded, device, times, no_values, [&](bool shows_all, const RunResult& result) {
        planned.policies = result.policies;
        complete = shows_all || times == Steady::twice;
        if (complete) at_end();
        end();
      });
    };
    return planner::rehearse(device, job, options);
  };
  if (!options.fold || !loaded.config.data.drop_last) {
    planned.memory = rehearsed(Steady::twice);
    return planned;
  }
  planned.memory = rehearsed(Steady::once);
  if (complete) {
    const auto steps = static_cast<int64_t>(planned.memory.steps.size());
    if (!is_short(loaded.config, steps)) planned.memory.folded["steady steps"] = steps - 1;
    return planned;
  }
  const double seconds = planned.memory.seconds;
  planned.memory = rehearsed(Steady::twice);
  planned.memory.seconds += seconds;
  return planned;
}

// Computes, and waits for threads as a plan does.
class WholeJob final : public policies::Rehearsal {
  std::unique_ptr<policies::PassFold> fold(std::string_view) override { return nullptr; }
};

}  // namespace

PlannedRun plan_run(const LoadedConfig& loaded, c10::Device device,
                    const planner::RehearsalOptions& options) try {
  return rehearse_job(loaded, device, options, [] {});
} catch (const policies::PolicyError& error) {
  throw with_place(error, loaded.places);
}

planner::Rehearsed rehearse_what_is_planned(const LoadedConfig& loaded, const std::function<void()>& at_end,
                                            const planner::RehearsalOptions& options) {
  return rehearse_job(loaded, c10::kCPU, options, at_end).memory;
}

void run_what_is_planned(const LoadedConfig& loaded, const std::function<void()>& at_end) {
  WholeJob whole;
  const policies::RehearsalGuard guard(whole);
  const policies::CountingAllocatorGuard counting;
  run_job(loaded, c10::kCPU, Steady::twice, made_up, [&](bool, const RunResult&) { at_end(); });
}

}  // namespace dtk
