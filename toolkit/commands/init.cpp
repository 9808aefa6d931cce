#include "toolkit/commands/init.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "toolkit/config/families.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/device/device.h"
#include "toolkit/run/run.h"
#include "toolkit/train/drawing.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/trial_step.h"

namespace dtk {
namespace {

constexpr double kMaxStepSeconds = 1;
constexpr double kRunSeconds = 1800, kSecondsBetweenSamples = 60, kSecondsBetweenCheckpoints = 300;
constexpr int64_t kFirstBatch = 16, kMaxFirstBatch = 64;

// How often what is done, in steps of a run whose step takes so long.
struct Pace {
  int64_t steps = 1000, sample_every = 100, log_every = 10, checkpoint_every = 500;
  double minutes = 0;  // that all steps take
};

// To one digit, so that nobody takes it for more than it is.
int64_t round_number(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(1.0, value))));
  return static_cast<int64_t>(std::max(1.0, std::round(value / power) * power));
}

Pace pace_of(double step_seconds) {
  Pace pace;
  pace.steps = std::max<int64_t>(1000, round_number(kRunSeconds / step_seconds));
  pace.sample_every = round_number(kSecondsBetweenSamples / step_seconds);
  pace.checkpoint_every = round_number(kSecondsBetweenCheckpoints / step_seconds);
  pace.log_every = round_number(5 / step_seconds);
  pace.minutes = static_cast<double>(pace.steps) * step_seconds / 60;
  return pace;
}

struct ModelChoice {
  const ModelDraft* model = nullptr;
  int64_t batch = 1;
  double step_seconds = 0;
  bool tried = true;  // else nobody knows how long it takes
};

std::string minutes_here(const ModelChoice& choice) {
  if (!choice.tried) return "in a time that nobody tried";
  return fmt::format("some {:.0f} minutes here", pace_of(choice.step_seconds).minutes);
}

std::string config_text(const DataDraft& draft, const ConfiguredFamily& family, const ModelChoice& choice,
                        const std::string& why) {
  const Pace pace = pace_of(choice.step_seconds);
  std::string text = fmt::format("# Written by dit-train --init, to be changed.\n\n[train]\nmodel = \"{}\"\n",
                                 family.name());
  text += "out = " + toml_text("runs/" + draft.name) + "\n";
  text += fmt::format("steps = {}          # {}\n", pace.steps, minutes_here(choice));
  text += fmt::format("log_every = {}\ncheckpoint_every = {}\n", pace.log_every, pace.checkpoint_every);
  constexpr int64_t fewest = 50, most = 500;  // of which a loss says something; more take time
  const int64_t held_out =
      draft.holds_out && draft.samples >= fewest ? std::min(most, draft.samples / 10) : 0;
  text += fmt::format("sample_every = {}\n", pace.sample_every);
  if (held_out > 0) text += fmt::format("validate_every = {}\n", pace.sample_every);
  text += "\n[data]\n" + draft.data;
  if (held_out > 0) text += fmt::format("validation = {}    # held out, never trained on\n", held_out);
  text += fmt::format("batch = {}\n\n# {}\n{}\n{}", choice.batch, why, choice.model->table, draft.rest);
  return text;
}

class Chooser {
 public:
  Chooser(const DataDraft& draft, const ConfiguredFamily& family, c10::Device device, const InitWorld& world)
      : draft_(draft), family_(family), device_(device), world_(world) {}

  ModelChoice choose() {
    ModelChoice best{&draft_.models.front(), first_batch(), 0};
    for (const ModelDraft& model : draft_.models) {
      const std::optional<double> seconds = step_seconds({&model, best.batch, 1});
      const bool will_do = seconds && *seconds <= kMaxStepSeconds, is_smallest = best.step_seconds == 0;
      if (will_do || is_smallest)
        best = {&model, best.batch, seconds.value_or(kMaxStepSeconds), seconds.has_value()};
      if (!will_do) break;
    }
    while (2 * best.batch <= std::min(kMaxFirstBatch, draft_.samples / 4) &&
           2 * best.step_seconds <= kMaxStepSeconds) {
      const ModelChoice larger{best.model, 2 * best.batch, 1};
      const std::optional<double> seconds = step_seconds(larger);
      if (!seconds || *seconds > kMaxStepSeconds) break;
      best = {best.model, larger.batch, *seconds};
    }
    return best;
  }

 private:
  int64_t first_batch() const {
    int64_t batch = kFirstBatch;
    while (batch > 1 && 2 * batch > draft_.samples) batch /= 2;
    return batch;
  }

  // Of a trial step; nothing where its plan takes more than half of the memory that is there.
  std::optional<double> step_seconds(const ModelChoice& choice) {
    if (world_.stop_requested && world_.stop_requested())
      throw Error(ExitCode::stopped, "stopped by a signal while the model was chosen; nothing was written");
    LoadedConfig loaded = parse_config(config_text(draft_, family_, choice, "tried"), "--init", {});
    resolve_threads(loaded);
    loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
    const std::string name = fmt::format("{} at batch {}", choice.model->name, choice.batch);
    const StartPlan plan = world_.plan ? world_.plan(loaded, device_) : StartPlan{};
    const auto available = available_bytes(device_);
    if (plan.memory && available && plan.memory->peak().peak.bytes > *available / 2) {
      world_.message(fmt::format("tried {}: planned {}, more than half of the {} that are available", name,
                                 readable_bytes(plan.memory->peak().peak.bytes), readable_bytes(*available)));
      return std::nullopt;
    }
    const double seconds = trial(loaded.config);
    world_.message(
        fmt::format("tried {}: {:.2f} s a step{}", name, seconds,
                    plan.memory ? ", planned " + readable_bytes(plan.memory->peak().peak.bytes) : ""));
    return seconds;
  }

  double trial(RunConfig config) const {
    const policies::ThreadCountGuard threads(static_cast<int>(*config.train.threads));
    const policies::SavedTensorEngineGuard engine;
    config.memory.ledger = false;
    const auto model = make_model(config, device_, policies::make_generator(device_, 0));
    policies::PolicyOptions options = config.policies;
    if (device_.is_cpu()) options.precision.enabled = policies::Enabled::off;
    TrialStep step(config, *model, options, samples_at_once(config));
    step.run();  // the first one takes longer
    const c10::impl::VirtualGuardImpl device(device_.type());
    if (!device_.is_cpu()) device.synchronizeDevice(device_.index());
    const double begin = world_.seconds();
    step.run();
    if (!device_.is_cpu()) device.synchronizeDevice(device_.index());
    return world_.seconds() - begin;
  }

  const DataDraft& draft_;
  const ConfiguredFamily& family_;
  const c10::Device device_;
  const InitWorld& world_;
};

// For a folder and a file: what may stand in both, whatever the data are called.
std::string plain_name(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    const bool stays = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    plain += stays ? c : '_';
  }
  const bool is_name = plain.find_first_not_of("._") != std::string::npos;
  return is_name ? plain : "mine";
}

struct FoundDraft {
  const ModelFamily* family;
  DataDraft draft;
};

FoundDraft draft_of(const std::filesystem::path& data, bool small) {
  std::error_code error;
  const std::string place = "--init " + shown(data);
  if (!std::filesystem::exists(data, error)) throw ConfigError(place + ": there is nothing of that name");
  if (printable(data.string()) != data.string())
    throw ConfigError(
        place + ": a configuration cannot name this: it is no UTF-8, or has control characters; rename it");
  std::string problems;
  std::vector<std::string> known;
  for (const ConfiguredFamily* const one : families()) {
    const auto* const family = dynamic_cast<const ModelFamily*>(one);
    if (family == nullptr) continue;
    if (!family->drafts().empty()) known.push_back(family->drafts());
    try {
      if (auto draft = family->draft(data, small)) {
        draft->name = plain_name(draft->name);
        return {family, std::move(*draft)};
      }
    } catch (const DataError& problem) {
      if (problems.empty()) problems = problem.what();  // another family may read them
    }
  }
  if (!problems.empty()) throw DataError(place + ": " + problems);
  throw ConfigError(place + ": no data that dit-train knows; wanted: " + listed(known, ", or "));
}

}  // namespace

std::filesystem::path write_first_config(const std::filesystem::path& data, const std::filesystem::path& out,
                                         c10::Device device, const InitWorld& world) {
  if (!out.empty()) check_out_folder(world.files, out.string());
  const auto [family, draft] = draft_of(data, device.is_cpu());
  const std::filesystem::path file = out.empty() ? std::filesystem::path(draft.name + ".toml") : out;
  if (world.files.exists(file)) {
    throw ConfigError((out.empty() ? file.string() : "--out " + file.string()) +
                      ": there is such a file; name another one with --out FILE");
  }
  world.message("found " + draft.found);
  const ModelChoice choice = Chooser(draft, *family, device, world).choose();
  const std::string why =
      choice.tried
          ? fmt::format("{}: a step of batch {} took {:.2f} s here, without the optimizer.",
                        choice.model->name, choice.batch, choice.step_seconds)
          : choice.model->name + ": its plan takes more than half of the memory that was available here.";
  write_file_atomically(world.files, file, config_text(draft, *family, choice, why));
  world.message(fmt::format("takes {} with batches of {}: {} steps, {}", choice.model->name, choice.batch,
                            pace_of(choice.step_seconds).steps, minutes_here(choice)));
  return file;
}

}  // namespace dtk
