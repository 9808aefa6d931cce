#include "toolkit/train/precision_choice.h"

#include <c10/util/Exception.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/precision_probe.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <optional>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/device/device.h"
#include "toolkit/train/trial_step.h"

namespace dtk {
namespace {

constexpr int64_t kPairs = 15;
constexpr double kSeconds = 5;
// Enough rows for the products to be as efficient as in the run, and little memory beside it.
constexpr int64_t kMaxTrialSamples = 16;

// How many times as long as fp32 a step of one sample takes in bf16 at most where whole trial steps follow: a
// CPU without bf16 of its own takes several times as long, and longer with more samples.
double hopeful() {
  return cpu_has_bf16() ? 4 : 2;
}

using policies::CpuPrecision;

struct Choice {
  CpuPrecision taken;
  std::string why;
  bool unclear = false;    // fp32, although the fastest step was one in bf16
  bool for_bytes = false;  // the only one that fits, whatever its time
};

void note_on_time(LoadedConfig& loaded, CpuPrecision taken) {
  if (taken == CpuPrecision::fp32 || cpu_has_bf16()) return;
  loaded.notes.emplace_back(
      "bf16 is taken as only that fits; this CPU has no instructions for it, so a step takes several times "
      "as long as in fp32");
}

bool fits(TrialStep& step) {
  try {
    step.run();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

// The one that fits; nothing if both do, and then their times decide. If none fits, the run will say so.
std::optional<Choice> by_budget(TrialStep& exact, TrialStep& fast) {
  const bool fp32_fits = fits(exact), bf16_fits = fits(fast);
  if (fp32_fits && bf16_fits) return std::nullopt;
  if (bf16_fits)
    return Choice{
        .taken = CpuPrecision::bf16, .why = "a step in fp32 does not fit memory.budget", .for_bytes = true};
  return Choice{CpuPrecision::fp32, fp32_fits ? "a step in bf16 does not fit memory.budget"
                                              : "a step fits memory.budget in neither bf16 nor fp32"};
}

void heed(const std::function<bool()>& stop_requested) {
  if (!stop_requested || !stop_requested()) return;
  throw Error(
      ExitCode::stopped,
      "stopped by a signal while the precision was chosen, before the first step; nothing was written");
}

Choice measure(const RunConfig& config, c10::Device device, Clock& clock,
               const std::function<bool()>& stop_requested) {
  // A model that does not fit does so here first, and the ledger says more about it.
  std::optional<policies::CountingAllocatorGuard> counting;
  std::optional<policies::MemoryBudgetGuard> budget;
  if (config.memory.ledger) counting.emplace();
  if (config.memory.budget) budget.emplace(policies::cpu_accounts(), config.memory.budget->bytes);
  const policies::OwnerScope owner(policies::Category::parameters, "model");
  const std::unique_ptr<TrainableModel> model =
      make_model(config, device, policies::make_generator(device, stream_seed(config.train.seed, "probe")));
  RunConfig quiet = config;
  quiet.memory.ledger = false;
  const int64_t batch = std::min(kMaxTrialSamples, samples_at_once(config));
  policies::PolicyOptions fp32 = config.policies, bf16 = config.policies;
  fp32.precision.enabled = policies::Enabled::off;
  bf16.precision.cpu = CpuPrecision::bf16;  // not asked for: without effect it is no error, only no faster
  TrialStep exact(quiet, *model, fp32, batch), fast(quiet, *model, bf16, batch);
  if (budget) {
    if (const auto only = by_budget(exact, fast)) return *only;
  }
  const auto probe = [&](TrialStep& in_fp32, TrialStep& in_bf16, int64_t pairs) {
    const auto step = [&](bool is_bf16) {
      heed(stop_requested);
      (is_bf16 ? in_bf16 : in_fp32).run();
    };
    return policies::probe_precision(step, pairs, kSeconds, [&] { return clock.seconds(); });
  };
  // Whole trial steps could take minutes then, before the first line of a run.
  TrialStep exact_one(quiet, *model, fp32, 1), fast_one(quiet, *model, bf16, 1);
  const policies::PrecisionTimes of_one = probe(exact_one, fast_one, 1);
  if (of_one.bf16_ms > hopeful() * of_one.fp32_ms)
    return {CpuPrecision::fp32, policies::describe(of_one, "a step of one sample")};
  const policies::PrecisionTimes times = probe(exact, fast, kPairs);
  const bool bf16_is_faster = policies::bf16_is_faster(times);
  return {bf16_is_faster ? CpuPrecision::bf16 : CpuPrecision::fp32, policies::describe(times),
          !bf16_is_faster && times.bf16_ms < times.fp32_ms};
}

// A run that goes on by its own saved configuration, which holds the decision, keeps the figures behind it.
void keep_figures(LoadedConfig& loaded, const LoadedConfig* resumed) {
  const std::string key = "policies.precision.cpu";
  auto& precision = loaded.config.policies.precision;
  if (resumed == nullptr || precision.cpu != resumed->config.policies.precision.cpu) return;
  const auto here = loaded.origins.find(key);
  const auto there = resumed->origins.find(key);
  if (here == loaded.origins.end() || here->second.source == Origin::Source::set) return;
  if (there == resumed->origins.end()) return;
  const bool measured = there->second.source == Origin::Source::measured;
  if (!measured && there->second.source != Origin::Source::planned) return;
  here->second = there->second;
  if (measured) precision.cpu_measured = there->second.text;
}

/// Takes `precision` and returns the line that says so.
std::string take(LoadedConfig& loaded, CpuPrecision taken, const Origin& origin) {
  loaded.config.policies.precision.cpu = taken;
  loaded.origins["policies.precision.cpu"] = origin;
  return fmt::format("precision on this CPU, {}; taken: {}", text_of(origin), policies::text_of(taken));
}

}  // namespace

bool precision_is_open(const RunConfig& config, c10::Device device) {
  const policies::PrecisionOptions& precision = config.policies.precision;
  return device.is_cpu() && precision.enabled == policies::Enabled::by_default &&
         precision.cpu == CpuPrecision::probe;
}

std::string take_planned_precision(LoadedConfig& loaded, policies::CpuPrecision taken,
                                   const std::string& why) {
  note_on_time(loaded, taken);
  return take(loaded, taken, {Origin::Source::planned, why});
}

std::string decide_precision(LoadedConfig& loaded, c10::Device device, Clock& clock,
                             const LoadedConfig* resumed, const std::function<bool()>& stop_requested) {
  auto& precision = loaded.config.policies.precision;
  const std::string key = "policies.precision.cpu";
  const bool open =
      precision.enabled == policies::Enabled::by_default && precision.cpu == CpuPrecision::probe;
  if (open && resumed != nullptr && resumed->config.policies.precision.cpu != CpuPrecision::probe) {
    precision.cpu = resumed->config.policies.precision.cpu;
    loaded.origins[key] = {Origin::Source::checkpoint};
  }
  keep_figures(loaded, resumed);
  if (!precision_is_open(loaded.config, device)) return "";
  // The run itself says so then, with the whole story.
  Choice choice{CpuPrecision::fp32, "not even the model fits"};
  try {
    choice = measure(loaded.config, device, clock, stop_requested);
  } catch (const c10::OutOfMemoryError&) {
  }
  precision.cpu_measured = choice.why;
  if (choice.for_bytes) note_on_time(loaded, choice.taken);
  return take(loaded, choice.taken, {Origin::Source::measured, choice.why}) +
         (choice.unclear ? fmt::format(", as bf16 has to be {:.0f} % faster, and ahead in {} of 5 pairs",
                                       100 * policies::kBf16Margin, policies::kBf16AheadOfFive)
                         : "");
}

}  // namespace dtk
