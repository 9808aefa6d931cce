#include "toolkit/plan/claims.h"

#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/io/json.h"
#include "toolkit/report/memory_need.h"

namespace dtk {
namespace {

constexpr int64_t kMaxTokens = 10'000'000;  // of a micro-batch: more is no answer to anybody

std::string parts_text(double part) {
  return fmt::format("{:.1f} %", 100 * part);
}

/// What a policy does to the job as it is.
struct Effect {
  std::string problem;
  BothPeaks now;
  double more_flops = 0;
};

class Checker {
 public:
  Checker(const LoadedConfig& loaded, c10::Device device, const planner::SimulationOptions& options)
      : loaded_(loaded), family_(family_of(loaded.config)), device_(device), options_(options) {}

  CheckedClaim check(const Claim& claim) {
    const Effect& effect = effect_of(claim.policy);
    CheckedClaim checked{
        .claim = claim, .problem = effect.problem, .now = effect.now, .more_flops = effect.more_flops};
    if (!effect.problem.empty()) return checked;
    if (claim.lowers_peak_by) find_where(*claim.lowers_peak_by, checked);
    if (!claim.device_bytes) return checked;
    try {
      checked.sized = sized(claim);
    } catch (const ConfigError& error) {
      checked.sized_problem = error.what();
    }
    return checked;
  }

 private:
  std::pair<Plan, Plan> plan_both(const std::string& policy, const RunConfig& config) const {
    const auto planned = [&](bool on) {
      LoadedConfig loaded = loaded_;
      loaded.config = config;
      policies::policy_kind(policy).switch_to(loaded.config.policies, device_, on);
      return make_plan(std::move(loaded), device_, options_);
    };
    return {planned(false), planned(true)};
  }

  const Effect& effect_of(const std::string& policy) {
    const auto [found, is_new] = effects_.try_emplace(policy);
    Effect& effect = found->second;
    if (!is_new) return effect;
    try {
      const auto [without, with] = plan_both(policy, loaded_.config);
      effect.now = {0, without.memory.peak(), with.memory.peak()};
      const planner::Flops& all = without.step;
      effect.more_flops = static_cast<double>(with.step.recomputed - all.recomputed) /
                          static_cast<double>(all.forward + all.backward + all.recomputed);
    } catch (const ConfigError& error) {
      effect.problem = error.what();
    }
    return effect;
  }

  const BothPeaks& sized(const Claim& claim) {
    const std::pair key{claim.policy, claim.samples};
    if (const auto found = sized_.find(key); found != sized_.end()) return found->second;
    RunConfig config = loaded_.config;
    config.data.batch = claim.samples * config.train.accumulate;
    config.memory.split = std::min(config.memory.split, claim.samples);
    const auto [without, with] = plan_both(claim.policy, config);
    return sized_[key] = {0, without.memory.peak(), with.memory.peak()};
  }

  const BothPeaks& peaks_at(const std::string& policy, int64_t tokens) {
    const SizedJob job = family_.of_size(loaded_.config, tokens);
    const auto [found, is_new] = peaks_.try_emplace({policy, job.tokens});
    if (is_new) {
      const auto [without, with] = plan_both(policy, job.config);
      found->second = {job.tokens, without.memory.peak(), with.memory.peak()};
    }
    return found->second;
  }

  // A saving grows with the tokens where it grows at all: two sizes that enclose it are looked for, then it
  // is, on lines through such two.
  void find_where(double claimed, CheckedClaim& checked) {
    const std::string& policy = checked.claim.policy;
    const RunConfig& config = loaded_.config;
    constexpr int64_t kFactor = 4;
    const auto meets = [claimed](const BothPeaks& one) { return one.lowered_by() >= claimed; };
    BothPeaks low = peaks_at(policy, family_.facts(config).tokens * samples_of_micro_batch(config));
    BothPeaks high = low;
    while (!meets(high) && high.tokens < kMaxTokens) {
      const BothPeaks next = peaks_at(policy, std::min(kMaxTokens, kFactor * high.tokens));
      if (next.tokens <= high.tokens) break;
      low = std::exchange(high, next);
    }
    while (meets(low)) {
      const BothPeaks next = peaks_at(policy, low.tokens / kFactor);
      if (next.tokens >= low.tokens) break;
      high = std::exchange(low, next);
    }
    if (!meets(high)) {
      checked.never = fmt::format("at no number of tokens up to {}, with which the peak is lower by {}",
                                  with_separators(high.tokens), parts_text(high.lowered_by()));
      return;
    }
    checked.met_at = nearest(policy, claimed, low, high);
  }

  BothPeaks nearest(const std::string& policy, double claimed, BothPeaks low, BothPeaks high) {
    constexpr int kTries = 16;
    constexpr double kNear = 0.0005;
    const auto off = [claimed](const BothPeaks& one) { return std::abs(one.lowered_by() - claimed); };
    for (int i = 0; i < kTries && std::min(off(low), off(high)) >= kNear; ++i) {
      // By turns in the middle: another phase may bind on one side, and the line then misses again and again.
      const int64_t middle = low.tokens + (high.tokens - low.tokens) / 2;
      const int64_t where = i % 3 == 2 ? middle : std::llround(crossing(low, high, claimed));
      const BothPeaks found = peaks_at(policy, std::clamp(where, low.tokens, high.tokens));
      BothPeaks& side = found.lowered_by() >= claimed ? high : low;
      if (found.tokens == side.tokens) break;
      side = found;
    }
    return off(low) < off(high) ? low : high;
  }

  /// Tokens at which the peak is lower by `part`, on the lines through two sizes.
  static double crossing(const BothPeaks& a, const BothPeaks& b, double part) {
    const auto left = [part](const BothPeaks& one) {
      return static_cast<double>(one.with.peak.bytes) -
             (1 - part) * static_cast<double>(one.without.peak.bytes);
    };
    const double slope = (left(b) - left(a)) / static_cast<double>(b.tokens - a.tokens);
    return slope == 0 ? static_cast<double>(a.tokens) : static_cast<double>(a.tokens) - left(a) / slope;
  }

  const LoadedConfig& loaded_;
  const ModelFamily& family_;
  const c10::Device device_;
  const planner::SimulationOptions options_;
  std::map<std::string, Effect> effects_;                       // by policy
  std::map<std::pair<std::string, int64_t>, BothPeaks> peaks_;  // by policy and tokens
  std::map<std::pair<std::string, int64_t>, BothPeaks> sized_;  // by policy and samples
};

std::string peaks_text(const BothPeaks& peaks) {
  const double part = peaks.lowered_by();
  return fmt::format("{} bytes in phase {} without, {} in phase {} with: {} {}",
                     with_separators(peaks.without.peak.bytes), peaks.without.name,
                     with_separators(peaks.with.peak.bytes), peaks.with.name, parts_text(std::abs(part)),
                     part < 0 ? "higher" : "lower");
}

std::string sized_text(const CheckedClaim& one) {
  const int64_t device = *one.claim.device_bytes;
  const auto side = [device](const policies::PhasePeak& peak) {
    return fmt::format("{} bytes in phase {}, which {}", with_separators(peak.peak.bytes), peak.name,
                       fits_in(peak.peak.bytes, device) ? "fits" : "does not fit");
  };
  return fmt::format("on one device, with micro-batches of {} in {} bytes: without, {}; with, {}",
                     one.claim.samples, with_separators(device), side(one.sized->without),
                     side(one.sized->with));
}

nlohmann::ordered_json json_of(const BothPeaks& peaks) {
  return {{"peak_bytes_without", peaks.without.peak.bytes},
          {"phase_without", peaks.without.name},
          {"peak_bytes_with", peaks.with.peak.bytes},
          {"phase_with", peaks.with.name},
          {"lowered_by", peaks.lowered_by()}};
}

[[noreturn]] void fail_to_read(const std::string& run, const std::string& what) {
  throw ConfigError(
      fmt::format("--report {}: {}; name the folder of a finished run of dit-train", run, what));
}

}  // namespace

std::map<std::string, TimedPairs> measured_times(FileSystem& files, const std::string& run) {
  constexpr uint64_t max_bytes = 64 << 20;
  constexpr int max_depth = 8;
  const std::filesystem::path path = std::filesystem::path(run) / "memory.json";
  if (!files.exists(path)) fail_to_read(run, "there is no memory.json in it");
  const nlohmann::json json = parse_strict_json(files.read(path, max_bytes), path.string(), max_depth);
  std::map<std::string, TimedPairs> times;
  try {
    for (const nlohmann::json& policy : json.value("policies", nlohmann::json::array())) {
      const auto time = policy.find("time");
      if (time == policy.end() || time->is_null()) continue;
      times[policy.at("name").get<std::string>()] = {
          time->at("pairs").get<int64_t>(), time->at("slower_by").get<double>(),
          time->at("lowest").get<double>(), time->at("highest").get<double>(),
          run + ", on " + json.value("device", std::string())};
    }
  } catch (const nlohmann::json::exception& error) {
    throw FileError(path.string() + " is none that dit-train wrote: " + error.what());
  }
  if (times.empty())
    fail_to_read(
        run, "its memory.json says of no policy what time it takes, as that of a run of ten seconds does");
  return times;
}

double BothPeaks::lowered_by() const {
  return 1 - static_cast<double>(with.peak.bytes) / static_cast<double>(without.peak.bytes);
}

std::vector<CheckedClaim> check_claims(const LoadedConfig& loaded, c10::Device device,
                                       const planner::SimulationOptions& options,
                                       const std::map<std::string, TimedPairs>& times) {
  Checker checker(loaded, device, options);
  std::vector<CheckedClaim> checked;
  for (const Claim& claim : family_of(loaded.config).claims(loaded.config)) {
    checked.push_back(checker.check(claim));
    if (const auto time = times.find(claim.policy); time != times.end()) checked.back().time = time->second;
  }
  return checked;
}

std::string claims_text(const std::string& name, const std::vector<CheckedClaim>& checked) {
  constexpr size_t column = 13;
  if (checked.empty()) return name + ": no public claim about this family is known\n";
  std::string text = name + ": what is claimed, and what is planned\n";
  for (const CheckedClaim& one : checked) {
    const Claim& claim = one.claim;
    text += "\n" + entry(claim.policy, column, "\"" + claim.words + "\"") +
            entry("  source", column, claim.source);
    if (!one.problem.empty()) {
      text += entry("  here", column, "cannot be planned both ways: " + one.problem);
      continue;
    }
    text += entry("  here", column, peaks_text(one.now));
    if (one.more_flops > 0 || claim.slower_by)
      text += entry("  arithmetic", column,
                    fmt::format("{} more FLOPs a step, and as much more time where they decide{}",
                                parts_text(one.more_flops), one.time ? "" : "; time was not measured"));
    if (one.time)
      text += entry("  measured", column,
                    fmt::format("a pass {}, in {}", timed_text(*one.time), one.time->place));
    if (one.sized) text += entry("  then", column, sized_text(one));
    if (!one.sized_problem.empty())
      text += entry("  then", column, "cannot be planned: " + one.sized_problem);
    if (!claim.lowers_peak_by) continue;
    text += entry("  true", column,
                  one.met_at ? fmt::format("at {} tokens: {}", with_separators(one.met_at->tokens),
                                           peaks_text(*one.met_at))
                             : one.never);
  }
  return text;
}

nlohmann::ordered_json claims_json(const std::vector<CheckedClaim>& checked) {
  const auto part = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const CheckedClaim& one : checked) {
    nlohmann::ordered_json entry = {{"policy", one.claim.policy},
                                    {"words", one.claim.words},
                                    {"source", one.claim.source},
                                    {"claimed",
                                     {{"lowers_peak_by", part(one.claim.lowers_peak_by)},
                                      {"slower_by", part(one.claim.slower_by)},
                                      {"device_bytes", nullptr},
                                      {"samples", one.claim.samples}}},
                                    {"problem", one.problem},
                                    {"planned", nullptr},
                                    {"more_flops", one.more_flops},
                                    {"met_at", nullptr},
                                    {"never", one.never},
                                    {"sized", nullptr},
                                    {"sized_problem", one.sized_problem},
                                    {"time", json_of(one.time)}};
    if (one.claim.device_bytes) entry["claimed"]["device_bytes"] = *one.claim.device_bytes;
    if (one.sized) entry["sized"] = json_of(*one.sized);
    if (one.problem.empty()) entry["planned"] = json_of(one.now);
    if (one.met_at) {
      entry["met_at"] = json_of(*one.met_at);
      entry["met_at"]["tokens"] = one.met_at->tokens;
    }
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace dtk
