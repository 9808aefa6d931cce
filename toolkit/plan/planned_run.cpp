#include "toolkit/plan/planned_run.h"

#include <dtk/policies/guards.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "toolkit/config/locations.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/plan/null_world.h"
#include "toolkit/run/run.h"
#include "toolkit/train/apply_policies.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

// A longer period of the policies is planned as one of four steps: one in which a policy acts, and those
// between two such steps, of which three show whether they are alike.
constexpr int64_t kLongPeriod = 100;
constexpr int64_t kShortPeriod = 4;
// More steps than these, twice, would take longer than a plan should.
constexpr int64_t kMaxPeriod = 1000;

// What the policies of a job are before its first step.
struct Policies {
  int64_t period = 1;  // steps that show once what they do
  std::vector<policies::PolicyReport> reports;
  int64_t rank_with_most = 0;
};

// That updates the most elements, of several the first: the leader has the most cells of each unit, but a
// parameter's last cell may not be full.
int64_t rank_with_most(const policies::Shards& shards) {
  if (!shards.divides()) return 0;
  std::vector<int64_t> updated(static_cast<size_t>(shards.ranks()), 0);
  for (size_t i = 0; i < shards.units().size(); ++i) {
    const policies::ParameterUnit& unit = shards.units()[i];
    const std::vector<int64_t>& ends = shards.ends(i);
    int64_t begin = 0;
    for (size_t rank = 0; rank < updated.size(); ++rank)
      updated[rank] += ends[rank] - std::exchange(begin, ends[rank]);
    for (size_t member = 0; member < unit.members.size(); ++member) {
      const auto& [index, offset, elements] = unit.members[member];
      const int64_t end = member + 1 < unit.members.size() ? unit.members[member + 1].offset : unit.elements;
      const auto last = std::lower_bound(ends.begin(), ends.end(), end);
      updated[static_cast<size_t>(last - ends.begin())] -= end - offset - elements;
    }
  }
  return std::max_element(updated.begin(), updated.end()) - updated.begin();
}

Policies policies_of(const RunConfig& config, int64_t ranks, c10::Device device) {
  const auto model = make_model(config, device, policies::make_generator(device, 0));
  const PlannedRanks planned(ranks);
  const auto shards = shards_of(config, *model, ranks > 1 ? &planned : nullptr);
  const policies::PolicySet set = put_policies_in(config.policies, *model, /*training=*/true, shards.get());
  return {set.period(), set.reports(), rank_with_most(*shards)};
}

// visit(kind, option) for the policies that have one and are not switched off.
template <class Visit>
void visit_periods(policies::PolicyOptions& options, const Visit& visit) {
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    const policies::StepsOption option = kind->period(options);
    if (option.steps != nullptr && kind->enabled(options) != policies::Enabled::off) visit(*kind, option);
  }
}

void refuse_long(const RunConfig& config, int64_t period, bool fold) {
  if (period <= kMaxPeriod) return;
  policies::PolicyOptions options = config.policies;
  std::string keys, too_long;
  int64_t longest = kMaxPeriod;
  visit_periods(options, [&](const policies::PolicyKind& kind, const policies::StepsOption& option) {
    const std::string key = fmt::format("policies.{}.{}", kind.name(), option.key);
    keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", key, *option.steps);
    if (*option.steps <= longest) return;
    longest = *option.steps;
    too_long = key;
  });
  std::string advice = fold ? "" : "without --no-fold";
  if (!keys.empty()) {
    advice += (advice.empty() ? "" : ", or ") +
              (too_long.empty() ? "with other values of " + keys + ", whose common multiple it is"
                                : fmt::format("with --set {}={} or less", too_long, kMaxPeriod));
  }
  throw Error(
      ExitCode::failure,
      fmt::format("the policies repeat their work after {} steps; a plan that leaves none out runs at "
                  "most {} of them, twice{}{}",
                  period, kMaxPeriod, advice.empty() ? "" : "; plan ", advice));
}

// A report of the job, whose period was another one in the plan.
void name_own_period(std::vector<policies::PolicyReport>& planned,
                     const std::vector<policies::PolicyReport>& own, policies::PolicyOptions options) {
  visit_periods(options, [&](const policies::PolicyKind& kind, const policies::StepsOption&) {
    policies::PolicyReport* const report = policies::report_of(planned, kind.name());
    const policies::PolicyReport* const said = policies::report_of(own, kind.name());
    if (report != nullptr && said != nullptr) report->reason = said->reason;
  });
}

// How often the job of a plan runs the period of the policies after its first step.
enum class Steady { once, twice };

// Steps of the epochs that the job has; none where that is not known before its data are.
std::optional<int64_t> steps_of_epochs(const RunConfig& config) {
  if (!config.train.epochs || !config.data.samples) return std::nullopt;
  const int64_t samples = *config.data.samples - config.data.validation, batch = config.data.batch;
  const int64_t epochs = *config.train.epochs;
  if (!config.data.drop_last) return epochs * ((samples + batch - 1) / batch);
  const int64_t micro = batch / config.train.accumulate;
  return (epochs * (samples / micro) + config.train.accumulate - 1) / config.train.accumulate;
}

// A job as short as that already stays as it is.
bool is_short(const RunConfig& config, int64_t steps) {
  if (config.train.seconds) return false;
  const std::optional<int64_t> by_epochs = steps_of_epochs(config);
  return (config.train.steps && *config.train.steps <= steps) || (by_epochs && *by_epochs <= steps);
}

int64_t twice(int64_t steps) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return steps > kMax / 2 ? kMax : 2 * steps;
}

// Whole batches that show an epoch: with the loader full of whole ones in the first and all steady steps.
int64_t max_whole_batches(const RunConfig& config, int64_t steady) {
  const int64_t micro = config.train.accumulate;
  return 1 + steady + (config.data.drop_last ? 0 : (config.data.prefetch + micro - 1) / micro);
}

int64_t steps_of_a_plan(const RunConfig& config, int64_t steady) {
  return max_whole_batches(config, steady) + (config.data.drop_last ? 0 : 1);
}

RunConfig shortened(RunConfig config, Steady times, int64_t steady) {
  const int64_t steps = steps_of_a_plan(config, steady);
  config.train.log_every = 1;
  config.train.init_from.clear();  // weights of a file are read into their places
  if (is_short(config, steps)) return config;
  config.train.steps = steps;
  config.train.seconds.reset();
  // The plan's epochs are shorter ones.
  if (config.train.epochs) config.train.epochs = std::max<int64_t>(*config.train.epochs, 2);
  for (int64_t* every :
       {&config.train.checkpoint_every, &config.train.sample_every, &config.train.validate_every})
    if (*every > 0) *every = times == Steady::once ? steps : steady;
  return config;
}

// All of the job's data set. An epoch of it is the job's own where it is as short, so that the loader is
// ahead in it as in the job; else it ends with the same last batch.
int64_t samples_of_a_plan(const RunConfig& config, int64_t steady) {
  const int64_t batches = max_whole_batches(config, steady), batch = config.data.batch;
  constexpr int64_t kMax = std::numeric_limits<uint32_t>::max();  // of an epoch
  if (batch > (kMax - config.data.validation) / (batches + 1)) {
    throw ConfigError(
        fmt::format("data.batch = {}: a plan has data for {} batches, and an epoch at most {} "
                    "samples; use a smaller data.batch",
                    batch, batches + 1, kMax));
  }
  const int64_t whole = batches * batch;
  const int64_t last = config.data.drop_last ? 0 : batch - 1;
  if (!config.data.samples) return config.data.validation + whole + last;
  const int64_t samples = *config.data.samples - config.data.validation;
  return samples < whole + batch ? *config.data.samples : config.data.validation + whole + samples % batch;
}

// How much of the steady steps is run.
struct Steps {
  Steady times = Steady::twice;
  bool whole_period = true;  // also a long one
  bool fold = true;          // as was asked for
};

// The job of a plan, and how it differs from the one that is asked for.
struct Job : PlannedJob {
  std::vector<policies::PolicyReport> own;  // what the policies of that one say
  int64_t period = 1;                       // of the policies
  int64_t rank_with_most = 0;
  bool whole = false;           // it has no more steps
  bool shorter_period = false;  // of the policies
  int64_t left_out = 0;         // steady steps, of two periods
};

Job job_of(const LoadedConfig& loaded, c10::Device device, const Steps& how) {
  const Policies own = policies_of(loaded.config, loaded.ranks, device);
  Job job;
  job.own = own.reports;
  job.period = own.period;
  job.rank_with_most = own.rank_with_most;
  RunConfig quick = loaded.config;
  if (own.period > kLongPeriod && !how.whole_period) {
    visit_periods(quick.policies, [](const policies::PolicyKind&, const policies::StepsOption& option) {
      *option.steps = std::min(*option.steps, kShortPeriod);
    });
    job.period = policies_of(quick, loaded.ranks, device).period;
  }
  refuse_long(loaded.config, job.period, how.fold);
  const int64_t steady = job.period * (how.times == Steady::once ? 1 : 2);
  job.whole = is_short(loaded.config, steps_of_a_plan(loaded.config, steady));
  job.shorter_period = job.period < own.period && !job.whole;
  job.left_out = job.whole ? 0 : twice(own.period) - steady;
  job.loaded = loaded;
  job.loaded.config = shortened(job.shorter_period ? quick : loaded.config, how.times, steady);
  job.samples = samples_of_a_plan(loaded.config, steady);
  return job;
}

// What a plan has shown when its job is at its end.
struct Shown {
  bool repeats = false;  // more steady steps would only repeat it, or there are none
  bool alike = true;     // so would those that a shortened period leaves out
  std::vector<policies::PolicyReport> policies;
  policies::TrafficByCollective sent = {};
};

void run(const Job& job, c10::Device device, Steady times, int64_t rank,
         const std::function<void(const Shown&)>& end) {
  NoFiles files;
  StandingClock clock;
  const RunConfig& config = job.loaded.config;
  PlanObserver observer([&](const PlanObserver& seen, const RunResult& result) {
    Shown shown{.repeats = job.whole || times == Steady::twice || seen.returns_to_first(),
                .alike = !job.shorter_period || !config.data.drop_last || seen.alike(job.period - 1),
                .policies = result.policies,
                .sent = result.sent};
    if (job.shorter_period) name_own_period(shown.policies, job.own, config.policies);
    end(shown);
  });
  const RunData data = family_of(config).planned_data(config, job.samples);
  PlannedRanks ranks(job.loaded.ranks, rank);
  RunWorld world{files, clock, observer, [&] { return observer.ended(); }};
  if (job.loaded.ranks > 1) world.ranks = &ranks;
  run_training(
      job.loaded, device, {}, [&](const DataIdentity*, const OpeningProgress&) { return data; }, world);
}

}  // namespace

PlannedJob planned_job(const LoadedConfig& loaded, c10::Device device) {
  return job_of(loaded, device, {});
}

// As many simulations as it takes. Left out like passes of a loop are a second pass through the period of the
// policies, if the first one, and what comes after the last step, ended with the books it began with, and
// most of a long period, if the steps before a policy acts end with equal books. The books of a job whose
// last batch is shorter depend on what the loader has ready, so it passes twice and nothing is compared.
PlannedRun plan_run(const LoadedConfig& loaded, c10::Device device, const planner::SimulationOptions& options,
                    const std::function<void()>& at_end, int64_t rank) try {
  Steps how{.times = options.fold && loaded.config.data.drop_last ? Steady::once : Steady::twice,
            .whole_period = !options.fold,
            .fold = options.fold};
  double seconds = 0;
  while (true) {
    Shown shown;
    int64_t left_out = 0;
    PlannedRun planned;
    planned.memory = planner::simulate(
        device,
        [&](const planner::EndOfPlan& end) {
          const Job job = job_of(loaded, device, how);
          left_out = job.left_out;
          planned.rank_with_most = job.rank_with_most;
          run(job, device, how.times, rank, [&](const Shown& seen) {
            shown = seen;
            if (at_end && shown.repeats && shown.alike) at_end();
            end();
          });
        },
        options);
    planned.memory.seconds = seconds += planned.memory.seconds;
    planned.policies = shown.policies;
    planned.sent = shown.sent;
    if (shown.repeats && shown.alike) {
      if (options.fold && left_out > 0) planned.memory.folded["steady steps"] = left_out;
      return planned;
    }
    if (!shown.alike) {
      how.whole_period = true;
    } else {
      how.times = Steady::twice;
    }
  }
} catch (const policies::PolicyError& error) {
  throw located(error, loaded.locations);
}

}  // namespace dtk
