#include "toolkit/run/start.h"

#include <ATen/Parallel.h>
#include <dtk/policies/advice.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "toolkit/checkpoint/store.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/core/text.h"
#include "toolkit/device/device.h"
#include "toolkit/report/level_choice.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/run/other_fits.h"
#include "toolkit/run/out_of_memory.h"
#include "toolkit/run/start_plan.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/precision_choice.h"

namespace dtk {

using policies::advise;

std::string resolve_measured(LoadedConfig& loaded, c10::Device device, const LoadedConfig* written,
                             const RunWorld& world) {
  if (written != nullptr && placement_is_open(loaded.config)) {
    loaded.config.policies.checkpoint = written->config.policies.checkpoint;
    for (const char* key : {"enabled", "targets", "every", "segment", "keep", "offload_min_bytes"}) {
      Origin& origin = loaded.origins[std::string("policies.checkpoint.") + key];
      if (origin.source != Origin::Source::escalated) origin = {Origin::Source::checkpoint};
    }
  }
  const bool is_tried = written == nullptr && precision_is_open(loaded.config, device);
  if (is_tried) world.observer.message("trying some steps in fp32 and in bf16, to take the faster");
  return decide_precision(loaded, device, world.clock, written, world.stop_requested);
}

std::optional<Weights> initial_weights(FileSystem& files, const LoadedConfig& loaded) {
  const TrainOptions& train = loaded.config.train;
  if (train.init_from.empty()) return std::nullopt;
  const auto place = [&](const std::string& key, const std::string& value) {
    return fmt::format("{}{} = {}", location_of(loaded, key), key, toml_text(value));
  };
  const std::string path_place = place("train.init_from", train.init_from);
  try {
    Weights weights = open_weights(files, {train.init_from, train.init_key, path_place,
                                           place("train.init_key", train.init_key), "train.init_key"});
    const auto model = make_model(loaded.config, at::kMeta);
    weights = complete_weights(*model, weights);
    model->check_fit(weights);
    return weights;
  } catch (const FileError& error) {  // a checkpoint that is damaged
    throw FileError(path_place + ": " + error.what());
  }
}

// Of those that the model has in fp32: what is frozen may stay as it is.
static std::string conversions(const Weights& weights, const TrainableModel& model) {
  std::set<std::string> as_fp32;
  for (const auto& [name, parameter] : model.parameters()) {
    if (parameter.scalar_type() == at::kFloat) as_fp32.insert(name);
  }
  Weights converted = weights;
  std::erase_if(converted.tensors, [&](const StoredTensor& one) { return as_fp32.count(one.name) == 0; });
  return conversion_note(converted);
}

std::vector<std::string> notes_on_start(const LoadedConfig& loaded, const std::optional<Weights>& initial) {
  std::vector<std::string> notes;
  const int64_t cores = std::thread::hardware_concurrency(), threads = *loaded.config.train.threads;
  if (cores > 0 && threads > cores) {
    notes.push_back(
        fmt::format("train.threads = {} is more than the {} of this machine: they wait for one another",
                    threads, count_text(cores, "core")));
  }
  for (const auto& [key, origin] : loaded.origins) {
    const std::string table = parent_of(key);
    if (origin.source == Origin::Source::set && key != table + ".enabled" &&
        switched_off(loaded.config, table))
      notes.push_back(fmt::format("{} has no effect: {}.enabled = false", key, table));
  }
  const auto model = make_model(loaded.config, at::kMeta);
  const std::vector<std::string> unused = model->unused();
  if (!unused.empty()) {
    notes.push_back(fmt::format("{} parameters are unused by construction, and have no state: {}",
                                unused.size(), first_few(unused, 1)));
  }
  if (initial) {
    notes.push_back("begins with " + initial->name);
    const std::string conversion = conversions(*initial, *model);
    if (!conversion.empty()) notes.push_back(conversion);
  } else if (model->is_partly_frozen() && loaded.config.train.init_from.empty()) {
    notes.push_back(
        "what is frozen keeps the random values that it is drawn with, as train.init_from names no weights");
  } else if (!loaded.config.train.init_from.empty()) {
    notes.push_back("train.init_from is where this run once began; it goes on from its checkpoint");
  }
  return notes;
}

DataIdentity identity_of(const RunData& data, const DataOptions& options, const RunWorld& world) {
  DataIdentity identity = data.all->identity();
  identity.held_out_below = data.split.held_out_below;
  // Data that are planned have no values.
  const bool follows = world.ranks != nullptr && !world.ranks->leads();
  if (options.fingerprint == Fingerprint::contents && (world.files.keeps_content() || follows))
    identity.contents = contents_sha256(*data.all);
  return identity;
}

void agree_on_data(Ranks& ranks, const DataIdentity& own) {
  const DataIdentity leaders =
      parse_identity(ranks.leader_says("data", identity_text(own)), "the leader's data");
  const std::vector<std::string> differing = differences(leaders, own);
  if (differing.empty()) return;
  throw DataError("the data are others than rank 0's; between its and these: " + first_few(differing, 3) +
                  "; give all ranks the same files");
}

// Whether a sample that stayed is still called what it was.
static bool keeps_names(const DataIdentity& then, const DataIdentity& now) {
  if (!then.files.empty()) return false;  // known by their positions
  return std::all_of(then.classes.begin(), then.classes.end(), [&](const DataClass& old) {
    return std::any_of(now.classes.begin(), now.classes.end(),
                       [&](const DataClass& one) { return one.name == old.name; });
  });
}

static bool labels_move(const DataIdentity& then, const DataIdentity& now) {
  return std::any_of(then.classes.begin(), then.classes.end(), [&](const DataClass& old) {
    return std::any_of(now.classes.begin(), now.classes.end(),
                       [&](const DataClass& one) { return one.name == old.name && one.label != old.label; });
  });
}

// Returns how the data differ that the run is allowed to go on with; "": not at all.
static std::string check_data(const ResumePoint& from, const DataIdentity& now, const DataOptions& options) {
  const std::string checkpoint = from.checkpoint.folder().string();
  const std::string go_on = "go on with these: " + advise("data.allow_change", "true");
  if (!from.data) {
    if (options.allow_change) return "data that the checkpoint says nothing of";
    throw ConfigError(fmt::format(
        "{} says nothing of the data that it was trained on, as an earlier version wrote it, which chose "
        "labels and held-out samples in another way; resume it with the program that wrote it, or {}",
        checkpoint, go_on));
  }
  const std::vector<std::string> differing = differences(*from.data, now);
  if (differing.empty()) return "";
  constexpr size_t shown = 5;
  std::vector<std::string> first = differing;
  first.resize(std::min(shown, first.size()));
  if (differing.size() > shown) first.push_back(fmt::format("{} more", differing.size() - shown));
  std::string text = listed(first, "; ", "; ");
  if (from.data->held_out_below && !keeps_names(*from.data, now))
    text +=
        "; samples are held out by their names, or positions where they have none, so that some change sides";
  if (labels_move(*from.data, now)) text += "; labels have moved, and the weights know what they were";
  if (options.allow_change) return "the data: " + text;
  throw ConfigError(
      fmt::format("the data have changed since {}: {}. Give the run the data that it was trained on, or {}",
                  checkpoint, text, go_on));
}

void take_changes(const ResumePoint& from, const DataIdentity& now, LoadedConfig& loaded) {
  const int64_t step = from.checkpoint.step();
  loaded.history = from.written.history;
  const std::string data = check_data(from, now, loaded.config.data);
  if (!data.empty()) loaded.history.push_back({step, data, /*changes_result=*/true});
  const auto changes = changes_on_resume(step, from.written.config, loaded.config);
  loaded.history.insert(loaded.history.end(), changes.begin(), changes.end());
  const auto forget = [&](const char* key, bool& allowed) {
    if (allowed) loaded.origins.erase(key);
    allowed = false;
  };
  forget("train.allow_thread_change", loaded.config.train.allow_thread_change);
  forget("data.allow_change", loaded.config.data.allow_change);
}

static bool is_refused(const StartPlan& plan) {
  return !plan.refusal.empty();
}

std::string resolve_level(LoadedConfig& loaded, c10::Device device, const RunWorld& world) {
  return choose_level(loaded, [&](LoadedConfig one) -> PlannedBytes {
    // What takes less comes in later: a plan's choice, a precision that is measured.
    if (placement_is_open(one.config)) one.config.policies.checkpoint.keep = policies::KeepWord::block;
    if (precision_is_open(one.config, device))
      one.config.policies.precision.cpu = policies::CpuPrecision::fp32;
    const StartPlan plan = start_plan(world, std::move(one), device);
    if (!plan.memory) return {std::nullopt, plan.why_not()};
    return {plan.need(/*with_host=*/false).bytes()};
  });
}

StartPlans plan_start(const RunWorld& world, LoadedConfig loaded, c10::Device device) {
  if (!world.plan) return {};
  if (!precision_is_open(loaded.config, device)) return {start_plan(world, loaded, device)};
  StartPlans plans;
  for (const auto precision : {policies::CpuPrecision::fp32, policies::CpuPrecision::bf16}) {
    LoadedConfig one = loaded;
    one.config.policies.precision.cpu = precision;
    plans.push_back(start_plan(world, one, device));
    plans.back().precision = precision;
  }
  return plans;
}

// The trial steps of a precision that is open yet run by the first plan's choice, too.
static void adopt_first(const StartPlans& plans, LoadedConfig& loaded) {
  if (!placement_is_open(loaded.config)) return;
  if (!plans.empty() && plans.front().placement) return adopt_placement(loaded, *plans.front().placement);
  const std::string key = "policies.checkpoint.keep";
  std::string why = "nobody plans this run";
  if (!plans.empty()) why = plans.front().why_not();
  throw ConfigError(fmt::format(
      "{}{} = \"auto\" is chosen by the run's plan, and there is none: {}; {}, or targets of your own",
      location_of(loaded, key), key, why,
      policies::advise("policies.checkpoint.keep", toml_text(policies::KeepWord::block))));
}

void refuse_if_none_can_run(const StartPlans& plans, LoadedConfig& loaded, c10::Device device, bool resumed,
                            const RunWorld& world) {
  if (!plans.empty() && std::all_of(plans.begin(), plans.end(), is_refused))
    throw ConfigError(plans.front().refusal);
  const auto without_plan = [](const StartPlan& one) { return !one.memory; };
  if (!plans.empty() && std::all_of(plans.begin(), plans.end(), without_plan))
    notes_on_plan(plans.front(), loaded, device, resumed, world);
  adopt_first(plans, loaded);
  if (std::any_of(plans.begin(), plans.end(), without_plan)) return;
  const auto smallest = std::min_element(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return a.memory->peak().peak.bytes < b.memory->peak().peak.bytes;
  });
  if (smallest != plans.end()) notes_on_plan(*smallest, loaded, device, resumed, world);
}

std::string resolve_precision(const StartPlans& plans, LoadedConfig& loaded, c10::Device device) {
  if (plans.size() < 2 || loaded.config.memory.on_over_budget != OnOverBudget::refuse) return "";
  const StartPlan* fitting = nullptr;
  std::string others;
  for (const StartPlan& plan : plans) {
    if (!plan.memory) return "";
    const auto problem = too_large(*plan.memory, plan.beside, loaded.config.memory, available_bytes(device));
    if (problem) {
      others = fmt::format("{} needs {} of {} bytes", policies::text_of(*plan.precision), problem->needed,
                           problem->limit);
    } else if (fitting != nullptr) {
      return "";
    } else {
      fitting = &plan;
    }
  }
  return fitting == nullptr ? "" : take_planned_precision(loaded, *fitting->precision, others);
}

static void adopt_instead(const CheckpointPlacement& placement, const LoadedConfig& asked,
                          LoadedConfig& loaded) {
  loaded.config.policies.checkpoint = asked.config.policies.checkpoint;
  for (const char* key : {"enabled", "targets", "keep"}) {
    const std::string name = std::string("policies.checkpoint.") + key;
    const auto origin = asked.origins.find(name);
    if (origin == asked.origins.end()) {
      loaded.origins.erase(name);
    } else {
      loaded.origins[name] = origin->second;
    }
  }
  adopt_placement(loaded, placement);
}

StartPlan plan_of(const StartPlans& plans, const LoadedConfig& asked, LoadedConfig& loaded) {
  for (const StartPlan& plan : plans) {
    if (plan.precision && plan.precision != loaded.config.policies.precision.cpu) continue;
    if (plan.placement) adopt_instead(*plan.placement, asked, loaded);
    return plan;
  }
  return {};
}

std::vector<std::string> notes_on_plan(const StartPlan& plan, const LoadedConfig& loaded, c10::Device device,
                                       bool resumed, const RunWorld& world) {
  const RunConfig& config = loaded.config;
  if (is_refused(plan)) throw ConfigError(plan.refusal);
  if (!plan.problem.empty()) {
    // A plan asks for no more than the run and uses none of it.
    const bool too_large = device.is_cpu() && plan.machine_too_small;
    if (too_large && config.memory.on_over_budget == OnOverBudget::refuse) {
      throw Error(ExitCode::memory,
                  fmt::format("{}, so it cannot hold the run; use a smaller model or data.batch, or {} to "
                              "start it all the same",
                              plan.problem, advise("memory.on_over_budget", toml_text(OnOverBudget::warn))));
    }
    return {"not planned: " + plan.problem};
  }
  if (!plan.memory) return {};
  const std::optional<int64_t> available = available_bytes(device);
  const std::string line = plan_line(*plan.memory, plan.beside, available);
  const auto problem = too_large(*plan.memory, plan.beside, config.memory, available);
  std::vector<std::string> notes = {line};
  if (plan.placement) notes.push_back(placement_text(*plan.placement));
  if (!problem) return notes;
  const bool with_host = device.is_cpu() && !problem->budget_is_the_limit;
  const bool refuses = config.memory.on_over_budget == OnOverBudget::refuse;
  const OtherFits others({loaded, plan, device, with_host, problem->limit}, world);
  const StateBytes state = state_bytes(*plan.memory);
  // Batches that are grouped by length keep their size within an epoch.
  const bool may_change = !resumed || config.data.order != DataOrder::grouped;
  const FewerSamples fewer =
      refuses && may_change && state.total() <= problem->limit ? others.fewer_samples() : FewerSamples{};
  const std::string message =
      fmt::format("{}{}; {}", problem->message, precision_words(plan.precision),
                  out_of_memory_advice(config, device,
                                       {.resumed = resumed,
                                        .by_budget = problem->budget_is_the_limit,
                                        .ranks = loaded.ranks,
                                        .divided_fits = refuses && others.weights_divided(),
                                        .limit = problem->limit,
                                        .needed = problem->needed,
                                        .fewer = fewer,
                                        .accumulate = others.accumulate(fewer),
                                        .state = state,
                                        .not_known = plan.beside.not_known}));
  const bool escalates = config.memory.on_out_of_memory == OnOutOfMemory::escalate;
  if (refuses) {
    throw Error(ExitCode::memory,
                fmt::format("{}; dit-plan --explain says what each policy would change; {}{}", message,
                            advise("memory.on_over_budget", toml_text(OnOverBudget::warn)),
                            escalates ? " to let memory.on_out_of_memory = \"escalate\" find what fits"
                                      : " to start the run all the same"));
  }
  notes.push_back("warning: " + message +
                  (!problem->budget_is_the_limit ? ""
                   : escalates ? "; the run begins, and goes on with less where a tensor would exceed it"
                               : "; the run begins, and ends where a tensor would exceed it"));
  return notes;
}

RunFacts run_facts(const LoadedConfig& loaded, c10::Device device, const RunData& data,
                   const StartPlan& plan) {
  return {
      .config = config_rows(loaded),
      .data = data.all->description(),
      .device = device.str(),
      .device_name = device_name(device),
      .threads = *loaded.config.train.threads,
      .ranks = loaded.ranks,
      .parameters = 0,
      .flops_per_sample = family_of(loaded.config).training_flops_per_sample(loaded.config, plan.step_flops),
      .policies = {},
      .samples = data.split.training->size(),
      .held_out = data.split.held_out ? data.split.held_out->size() : 0,
      .remarks = data.remarks,
      .unseen_classes = unseen_classes(data.classes),
      .class_names = data.all->class_names(),
      .planned = plan.memory,
      .not_planned = plan.beside.not_known};
}

void refuse_build(const c10::OutOfMemoryError& error, const LoadedConfig& loaded, c10::Device device,
                  const std::optional<MemoryReport>& plan, RunFacts facts, const DataIdentity& data,
                  RunFolder* folder, const MemoryMeters& meters, const RunWorld& world) {
  const std::string advice = out_of_memory_advice(
      loaded.config, device,
      shortage_of(error, loaded.config, plan, /*in_build=*/true, /*resumed=*/folder == nullptr, world.ranks));
  throw_if_bare(error, loaded.config, world.observer);
  throw out_of_memory(error, advice, [&] {
    if (folder == nullptr) return;
    for (const std::string& note : folder->claim(data)) world.observer.message(note);
    facts.parameters = trainable_parameters(loaded.config);
    RunRecord record(loaded.config, facts, world, Logged::start, 0);
    record.out_of_memory(0, report_with_refusal(meters, error));
  });
}

void refuse_rebuild(const c10::OutOfMemoryError& error, const LoadedConfig& loaded, c10::Device device,
                    const Escalation& escalation, RunFacts facts, const MemoryMeters& meters,
                    const RunWorld& world) {
  const std::string advice = fmt::format(
      "last checkpoint: {}, with {}, which a resumed run goes on with unless --set says otherwise; {}",
      escalation.saved_as.string(), escalation.chosen,
      out_of_memory_advice(loaded.config, device,
                           shortage_of(error, loaded.config, escalation.plan.memory, /*in_build=*/true,
                                       /*resumed=*/true, world.ranks)));
  throw out_of_memory(error, advice, [&] {
    facts.parameters = trainable_parameters(loaded.config);
    const std::optional<int64_t> step = step_named(escalation.saved_as.filename().string());
    RunRecord record(loaded.config, facts, world, std::nullopt, step.value_or(0));
    record.out_of_memory(step.value_or(0), report_with_refusal(meters, error));
  });
}

void resolve_threads(LoadedConfig& loaded, int64_t processes) {
  if (loaded.config.train.threads) return;
  loaded.config.train.threads = std::max<int64_t>(1, at::get_num_threads() / processes);
  const char* const given = std::getenv("OMP_NUM_THREADS");
  loaded.origins["train.threads"] = {Origin::Source::by_default,
                                     given != nullptr ? "OMP_NUM_THREADS"
                                     : processes > 1
                                         ? fmt::format("the cores of this machine, among {} ranks", processes)
                                         : "the cores of this machine"};
}

}  // namespace dtk
