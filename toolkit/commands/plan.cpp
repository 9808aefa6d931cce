#include "toolkit/commands/plan.h"

#include <optional>
#include <utility>
#include <vector>

#include "toolkit/commands/calibrate.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/numbers.h"
#include "toolkit/device/device.h"
#include "toolkit/plan/alternatives.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/run/run.h"

namespace dtk {

namespace {

constexpr Capacity kBudget = Capacity::allocator, kMaxBatch = Capacity::device;

struct Job {
  const PlanArguments& arguments;
  const LoadedConfig loaded;
  const c10::Device device;
  const std::optional<int64_t> budget;
  const planner::SimulationOptions options;
  const std::function<void(const std::string&)>& print;
  const std::optional<CheckpointPlacement> placement;  // of `loaded`
  const policies::CheckpointOptions written;           // before that
};

// The plan of the smallest batch tells whether another batch helps.
std::string advice_of(const Job& job, const Plan& plan) {
  if (!job.arguments.max_batch.empty()) return "; give --max-batch no more than that";
  if (plan.memory.peak().peak.of(policies::Category::parameters) > *job.budget) return "";
  LoadedConfig smallest = job.loaded;
  smallest.config.data.batch = smallest.config.train.accumulate;
  const MemoryNeed least = make_plan(std::move(smallest), job.device, job.options).need_in(kBudget);
  if (least.fits(job.budget))
    return "; --max-batch finds the largest batch that fits, --table says what other policies take";
  return "; data.batch = " + std::to_string(job.loaded.config.train.accumulate) +
         " does not fit either and takes " + exact_bytes(least.bytes()) +
         "; --table says what other policies take, else use a larger budget or a smaller model";
}

void check_budget(const Job& job, const Plan& plan) {
  const MemoryNeed need = plan.need_in(kBudget);
  if (need.fits(job.budget)) return;
  throw Error(ExitCode::memory,
              "does not fit into memory.budget: " + excess_text(need, *job.budget) + advice_of(job, plan));
}

void report_table(const Job& job) {
  SteadyClock clock;
  const double begin = clock.seconds();
  std::vector<PlanRow> rows = plan_table(job.loaded, job.device, job.options);
  for (PlanRow& row : rows) row.plan.placement = job.placement;
  job.print(job.arguments.json
                ? plan_table_json(rows)
                : plan_table_text(job.arguments.config, rows, job.budget, clock.seconds() - begin));
  const MemoryNeed lowest = rows.front().plan.need_in(kBudget);
  if (lowest.fits(job.budget)) return;
  throw Error(ExitCode::memory, "none of the " + std::to_string(rows.size()) +
                                    " combinations fits into memory.budget: with the lowest peak, " +
                                    excess_text(lowest, *job.budget));
}

void report_largest(const Job& job, int64_t bytes) {
  const LargestPlannedBatch found =
      largest_planned_batch(job.loaded, job.device, bytes, job.options, measures_here(job.arguments));
  if (!found.largest) {
    const std::string batch = std::to_string(found.next->loaded.config.data.batch);
    throw Error(ExitCode::memory, "--max-batch " + job.arguments.max_batch + ": not even data.batch = " +
                                      batch + " fits: " + excess_text(found.next->need_in(kMaxBatch), bytes));
  }
  job.print(job.arguments.json ? largest_batch_json(found, bytes)
                               : largest_batch_text(job.arguments.config, found, bytes));
  check_budget(job, *found.largest);
}

void report_plan(const Job& job) {
  Plan plan = make_plan(job.loaded, job.device, job.options);
  plan.placement = job.placement;
  if (job.arguments.explain) {
    const auto effects = explain_policies(plan, job.device, job.options);
    const planner::Explanation why = explain_segments(plan, effects, job.device, job.options);
    const CheckpointChoices others = checkpoint_choices(plan, job.written, job.device, job.options);
    job.print(job.arguments.json
                  ? plan_json(plan, effects, &why, &others)
                  : plan_text(job.arguments.config, plan) + "\n" + explain_text(plan, effects) + "\n" +
                        planner::text_of(why) + "\n" + checkpoint_choices_text(plan, others));
  } else {
    job.print(job.arguments.json ? plan_json(plan) : plan_text(job.arguments.config, plan));
  }
  check_budget(job, plan);
}

}  // namespace

void run_plan(const PlanArguments& arguments, FileSystem& files,
              const std::function<void(const std::string&)>& print) {
  if (!arguments.calibrate.empty()) return run_calibration(arguments, files, print);
  const c10::Device device(arguments.device == PlannedDevice::cpu ? "cpu" : "cuda:0");
  LoadedConfig loaded = load_config(files, arguments.config, arguments.set);
  resolve_threads(loaded);
  resolve_budget(loaded, device);
  const std::optional<Calibration> measured = calibration_for(arguments, files, loaded, device);
  std::optional<int64_t> budget;
  if (loaded.config.memory.budget) budget = loaded.config.memory.budget->bytes;
  const planner::SimulationOptions options = options_of(arguments, measured);
  const policies::CheckpointOptions written = loaded.config.policies.checkpoint;
  std::optional<CheckpointPlacement> placement;
  if (placement_is_open(loaded.config) && arguments.max_batch.empty())
    placement = place_checkpoints(loaded, device, options);
  const Job job{arguments, std::move(loaded), device, budget, options, print, placement, written};
  if (arguments.table) return report_table(job);
  if (arguments.max_batch.empty()) return report_plan(job);
  const auto percent = parse_percent(arguments.max_batch);
  const std::string place = "--max-batch " + arguments.max_batch;
  report_largest(job, percent ? part_of_device(*percent, device, place) : *parse_bytes(arguments.max_batch));
}

}  // namespace dtk
