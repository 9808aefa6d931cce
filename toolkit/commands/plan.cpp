#include "toolkit/commands/plan.h"

#include <dtk/planner/torch_versions.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "toolkit/config/rules.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/device/cards.h"
#include "toolkit/device/device.h"
#include "toolkit/distributed/agreement.h"
#include "toolkit/io/json.h"
#include "toolkit/plan/alternatives.h"
#include "toolkit/plan/claims.h"
#include "toolkit/plan/inference_text.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/plan/worlds.h"
#include "toolkit/report/level_choice.h"
#include "toolkit/run/run.h"
#include "toolkit/train/model_family.h"

namespace dtk {

namespace {

std::string summary(const Calibration& calibration, const std::string& file) {
  if (calibration.device != PlannedDevice::cpu) {
    std::string text = fmt::format("{}: {}\n", file, calibration_text(calibration));
    for (const planner::MeasuredTerm& term : calibration.terms) {
      text += fmt::format("  {}, {}: {} bytes, by the formula {}\n", term.name, term.what, term.bytes,
                          term.by_formula);
    }
    return text;
  }
  int64_t most = 0, with = 0;
  for (const auto& [call, bytes] : calibration.scratch) {
    most = std::max(most, bytes.most);
    with += bytes.most > 0 ? 1 : 0;
  }
  return fmt::format("{}: scratch of {} calls, {} of which take any, at most {}; {}\n", file,
                     calibration.scratch.size(), with, readable_bytes(most), calibration_text(calibration));
}

// Measures and writes arguments.calibrate.
void run_calibration(const PlanArguments& arguments, FileSystem& files,
                     const std::function<void(const std::string&)>& print) {
  Calibration calibration;
  if (arguments.device == PlannedDevice::cpu) {
    LoadedConfig loaded = load_config(files, arguments.config, arguments.set);
    resolve_threads(loaded);
    calibration = calibrate_cpu(std::move(loaded));
  } else {
    calibration = calibrate_cuda();
  }
  write_file_atomically(files, arguments.calibrate, calibration_json(calibration));
  print(summary(calibration, arguments.calibrate));
}

// What arguments.calibration holds, if it is asked for and was measured as `loaded` will run on `device`; for
// "here" it is measured now. Nothing then for --max-batch, whose candidates are each measured.
std::optional<Calibration> calibration_for(const PlanArguments& arguments, FileSystem& files,
                                           const LoadedConfig& loaded, c10::Device device) {
  const std::string& file = arguments.calibration;
  if (file.empty()) return std::nullopt;
  const std::string place = "--calibration " + file;
  if (measures_here(arguments)) {
    if (!arguments.max_batch.empty()) return std::nullopt;
    Calibration calibration = calibrate_cpu(loaded, available_bytes());
    if (calibration.scratch.empty())
      throw ConfigError(
          place +
          ": the job is larger than the memory that is free on this machine, so its kernels cannot "
          "be run here; leave it out, or measure a smaller data.batch");
    return calibration;
  }
  if (!files.exists(file))
    throw ConfigError(fmt::format("{}: no such file; dit-plan --calibrate {} writes it", place, file));
  if (files.is_folder(file))
    throw ConfigError(place + ": a folder; give a file that dit-plan --calibrate wrote");
  const std::string text = [&] {
    try {
      return files.read_given(file, max_text_bytes);
    } catch (const FileError& error) {
      throw ConfigError(place + ": " + error.what());
    }
  }();
  Calibration calibration = parse_calibration(text, place);
  check_calibration(calibration,
                    device.is_cpu() ? calibration_of_this_cpu(*loaded.config.train.threads)
                                    : calibration_of_cuda(calibration.machine),
                    place);
  return calibration;
}

constexpr Capacity kBudget = Capacity::allocator, kMaxBatch = Capacity::device;

struct PlanJob {
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
std::string advice_of(const PlanJob& job, const Plan& plan) {
  if (plan.loaded.inferred) return "; --max-frames finds how many fit, --table says what policies take";
  if (!job.arguments.max_batch.empty()) return "; give --max-batch no more than that";
  const policies::MemorySums& peak = plan.memory.peak().peak;
  if (peak.of(policies::Category::parameters) + peak.of(policies::Category::frozen) > *job.budget) return "";
  LoadedConfig smallest = job.loaded;
  smallest.config.data.batch = smallest.config.train.accumulate;
  const MemoryNeed lowest = make_plan(std::move(smallest), job.device, job.options).need_in(kBudget);
  if (lowest.fits(job.budget))
    return "; --max-batch BYTES finds the largest batch that fits so many, --table says what other policies "
           "take";
  return fmt::format(
      "; data.batch = {} does not fit either and takes {}; --table says what other policies "
      "take, else use a larger budget or a smaller model",
      job.loaded.config.train.accumulate, exact_bytes(lowest.bytes()));
}

void check_budget(const PlanJob& job, const Plan& plan) {
  const MemoryNeed need = plan.need_in(kBudget);
  if (need.fits(job.budget)) return;
  std::optional<policies::CpuPrecision> open;
  if (!plan.precisions.empty()) open = plan.loaded.config.policies.precision.cpu;
  throw Error(ExitCode::memory,
              fmt::format("does not fit into memory.budget: {}{}{}", excess_text(need, *job.budget),
                          precision_words(open), advice_of(job, plan)));
}

void report_table(const PlanJob& job) {
  SteadyClock clock;
  const double begin = clock.seconds();
  std::vector<PlanRow> rows = plan_table(job.loaded, job.device, job.options);
  for (PlanRow& row : rows) row.plan.placement = job.placement;
  job.print(job.arguments.json
                ? json_text(plan_table_json(rows))
                : plan_table_text(job.arguments.config, rows, job.budget, clock.seconds() - begin));
  const MemoryNeed lowest = rows.front().plan.need_in(kBudget);
  if (lowest.fits(job.budget)) return;
  throw Error(ExitCode::memory,
              fmt::format("none of the {} combinations fits into memory.budget: with the lowest peak, {}",
                          rows.size(), excess_text(lowest, *job.budget)));
}

void report_largest(const PlanJob& job, int64_t bytes, const Card* card) {
  const LargestPlannedBatch found =
      largest_planned_batch(job.loaded, job.device, bytes, job.options, measures_here(job.arguments));
  if (!found.largest) {
    throw Error(ExitCode::memory, fmt::format("--max-batch {}: not even data.batch = {} fits: {}",
                                              job.arguments.max_batch, found.next->loaded.config.data.batch,
                                              excess_text(found.next->need_in(kMaxBatch), bytes)));
  }
  job.print(job.arguments.json ? json_text(largest_batch_json(found, bytes))
                               : largest_batch_text(job.arguments.config, found, bytes, card));
  check_budget(job, *found.largest);
}

void report_worlds(const PlanJob& job) {
  const PlannedWorlds worlds = plan_worlds(job.loaded, job.device, job.arguments.worlds, job.options);
  job.print(job.arguments.json ? json_text(worlds_json(worlds.plans))
                               : worlds_text(job.arguments.config, job.loaded, worlds));
}

void report_claims(const PlanJob& job, const std::map<std::string, TimedPairs>& times) {
  const std::vector<CheckedClaim> checked = check_claims(job.loaded, job.device, job.options, times);
  job.print(job.arguments.json ? json_text(claims_json(checked))
                               : claims_text(job.arguments.config, checked));
}

void report_plan(const PlanJob& job) {
  Plan plan = plan_highest_rank(job.loaded, job.device, job.options);
  plan.placement = job.placement;
  if (job.arguments.explain) {
    const auto effects = explain_policies(plan, job.device, job.options);
    const planner::Explanation why = explain_segments(plan, effects, job.device, job.options);
    const CheckpointChoices others = checkpoint_choices(plan, job.written, job.device, job.options);
    const PerToken costs = per_token(plan, job.device, job.options);
    job.print(job.arguments.json
                  ? json_text(plan_json(plan, effects, &why, &others, &costs))
                  : fmt::format("{}\n{}\n{}\n{}\n{}\n{}", plan_summary_text(job.arguments.config, plan),
                                checkpoint_choices_text(plan, others), plan_tables_text(plan),
                                explain_text(plan, effects), planner::text_of(why), per_token_text(costs)));
  } else {
    job.print(job.arguments.json ? json_text(plan_json(plan)) : plan_text(job.arguments.config, plan));
  }
  check_budget(job, plan);
}

// `size`: or a card, which `card` is then.
int64_t bytes_of_size(const std::string& size, c10::Device device, const std::string& place,
                      const Card** card = nullptr) {
  if (const Card* const one = find_card(size)) {
    if (device.is_cpu())
      throw ConfigError(place +
                        ": the memory of a card, and --device cpu plans for the machine's; leave it out");
    if (card != nullptr) *card = one;
    return one->bytes;
  }
  const auto percent = parse_percent(size);
  return percent ? part_of_device(*percent, device, place) : *parse_bytes(size);
}

void check_claims_of_training(const RunConfig& config) {
  const ModelFamily& family = family_of(config);
  if (family.claims(config).empty() && !family.inference_claims(config).empty())
    throw ConfigError("--claims: what is claimed of models of train.model = \"" + config.train.model +
                      "\" is of inference; add --infer --frames N");
}

// Of a configuration without one, which may be meant to infer.
void check_end_of(const LoadedConfig& loaded) try { check_end(loaded); } catch (const ConfigError& error) {
  if (family_of(loaded.config).inferred().empty()) throw;
  throw ConfigError(std::string(error.what()) + ", or plan what it infers with --infer --frames N");
}

// Throws where no row fits.
void check_rows(const PlanJob& job, const std::vector<InferenceRow>& rows) {
  std::optional<MemoryNeed> lowest;
  for (const InferenceRow& row : rows) {
    if (!row.problem.empty()) continue;
    const MemoryNeed need = row.plan.need_in(kBudget);
    if (need.fits(job.budget)) return;
    if (!lowest || need.bytes() < lowest->bytes()) lowest = need;
  }
  if (lowest)
    throw Error(ExitCode::memory, "none of these rows fits into memory.budget: with the lowest peak, " +
                                      excess_text(*lowest, *job.budget));
}

// As many as fit.
void report_most(const PlanJob& job) {
  const PlanArguments& asked = job.arguments;
  const std::string place = "--max-frames " + asked.max_frames;
  const int64_t bytes = bytes_of_size(asked.max_frames, job.device, place);
  LoadedConfig one = job.loaded;
  one.inferred = 1;
  const std::vector<std::string> notes = policies_without_use(one, job.device, job.options);
  const LargestCount found = largest_planned_count(job.loaded, job.device, bytes, job.options);
  if (!found.largest) {
    throw Error(ExitCode::memory, place + ": not even one of the frames fits: " +
                                      excess_text(found.next->need_in(Capacity::device), bytes));
  }
  const LoadedConfig& taken = found.largest->loaded;
  job.print(asked.json ? json_text(inference_json(plan_json(*found.largest), job.loaded, taken, notes))
                       : largest_count_text(asked.config, job.loaded, found, bytes) + notes_text(notes));
}

// A job that only infers.
void report_inference(const PlanJob& job) {
  const PlanArguments& asked = job.arguments;
  const std::string& name = asked.config;
  if (family_of(job.loaded.config).inferred().empty())
    throw ConfigError("--infer: models of train.model = \"" + job.loaded.config.train.model +
                      "\" are planned with their training, of which sampling is a phase; leave it out");
  if (!asked.max_frames.empty()) return report_most(job);
  LoadedConfig loaded = job.loaded;
  loaded.inferred = asked.frames.back();
  const std::vector<std::string> notes = policies_without_use(loaded, job.device, job.options);
  if (job.budget && !asked.table) loaded = within_budget(loaded, job.device, *job.budget, job.options);
  const std::string after = notes_text(notes) + set_text(job.loaded, loaded, "it fits into memory.budget");
  const auto json = [&](nlohmann::ordered_json object, const std::vector<InferenceRow>& rows = {}) {
    return inference_json(std::move(object), job.loaded, loaded, notes, rows);
  };
  if (asked.claims) return job.print(inference_claims_text(name, loaded, job.device, job.options) + after);
  std::vector<InferenceRow> rows;
  if (asked.table || asked.explain) rows = inference_table(loaded, job.device, job.options);
  if (asked.table) {
    job.print(asked.json ? json_text(inference_table_json(rows))
                         : inference_table_text(name, rows, job.budget) + after);
    return check_rows(job, rows);
  }
  if (asked.frames.size() > 1) {
    const CountTable table = plan_counts(loaded, job.device, asked.frames, job.options);
    job.print(asked.json ? json_text(json(count_table_json(table))) : count_table_text(name, table) + after);
    return check_budget(job, table.plans.back());
  }
  const Plan plan = make_plan(loaded, job.device, job.options);
  const std::string explained = rows.empty() ? "" : "\n" + inference_table_text(name, rows, job.budget);
  job.print(asked.json ? json_text(json(plan_json(plan), rows)) : plan_text(name, plan) + explained + after);
  check_budget(job, plan);
}

// A largest batch is that of the level that takes least.
std::string choose_level_by_plans(LoadedConfig& loaded, const PlanArguments& arguments, c10::Device device,
                                  const planner::SimulationOptions& options) {
  if (level_is_open(loaded.config) && loaded.ranks > 1 && !arguments.max_batch.empty()) {
    take_level(loaded.config, policies::ShardLevel::parameters);
    return "level = \"auto\": the largest batch is that of \"parameters\"";
  }
  return choose_level(loaded, [&](LoadedConfig one) -> PlannedBytes {
    if (placement_is_open(one.config)) one.config.policies.checkpoint.keep = policies::KeepWord::block;
    return {plan_highest_rank(one, device, options).need_in(kBudget).bytes()};
  });
}

}  // namespace

void run_plan(const PlanArguments& arguments, FileSystem& files,
              const std::function<void(const std::string&)>& print) {
  const std::string unplanned = planner::unplanned_torch();
  if (!unplanned.empty()) throw ConfigError(unplanned);
  if (!arguments.calibrate.empty()) return run_calibration(arguments, files, print);
  const c10::Device device(arguments.device == PlannedDevice::cpu ? "cpu" : "cuda:0");
  LoadedConfig loaded = load_config(files, arguments.config, arguments.set);
  if (arguments.claims && !arguments.infer) check_claims_of_training(loaded.config);
  if (!arguments.infer) check_end_of(loaded);
  resolve_threads(loaded);
  share_out(loaded, arguments.world);
  if (arguments.world > 1 ||
      std::any_of(arguments.worlds.begin(), arguments.worlds.end(), [](int64_t one) { return one > 1; }))
    check_backend(loaded, device);
  resolve_budget(loaded, device);
  family_of(loaded.config).measure_data(loaded.config);
  const std::optional<Calibration> measured = calibration_for(arguments, files, loaded, device);
  std::optional<int64_t> budget;
  if (loaded.config.memory.budget) budget = loaded.config.memory.budget->bytes;
  planner::SimulationOptions options;
  options.fold = arguments.fold;
  options.terms = arguments.terms;
  if (measured) options = with_calibration(options, *measured);
  if (arguments.worlds.empty() && !arguments.infer) {
    const std::string choice = choose_level_by_plans(loaded, arguments, device, options);
    if (!choice.empty() && !arguments.json) print(choice + "\n\n");
  }
  const policies::CheckpointOptions written = loaded.config.policies.checkpoint;
  std::optional<CheckpointPlacement> placement;
  if (placement_is_open(loaded.config) && arguments.max_batch.empty() && arguments.worlds.empty() &&
      !arguments.infer)
    placement = place_checkpoints(loaded, device, options);
  const PlanJob job{arguments, std::move(loaded), device, budget, options, print, placement, written};
  if (arguments.infer) return report_inference(job);
  if (arguments.table) return report_table(job);
  if (!arguments.worlds.empty()) return report_worlds(job);
  if (arguments.claims) {
    const std::string& run = arguments.report;
    return report_claims(job, run.empty() ? std::map<std::string, TimedPairs>() : measured_times(files, run));
  }
  if (arguments.max_batch.empty()) return report_plan(job);
  const Card* card = nullptr;
  const int64_t bytes =
      bytes_of_size(arguments.max_batch, device, "--max-batch " + arguments.max_batch, &card);
  report_largest(job, bytes, card);
}

}  // namespace dtk
