#include "toolkit/plan/claims.h"

#include <dtk/policies/policy_kind.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"

namespace dtk {
namespace {

constexpr int64_t kMaxTokens = 100'000'000;  // of a micro-batch: more is no answer to anybody

std::string parts_text(double part) {
  return fmt::format("{:.1f} %", 100 * part);
}

/// What a policy does at a size of micro-batch, and at twice that.
struct Line {
  std::string problem;
  BothPeaks few, many;
  double more_flops = 0;
};

class Checker {
 public:
  Checker(const LoadedConfig& loaded, c10::Device device, const planner::SimulationOptions& options)
      : loaded_(loaded), family_(family_of(loaded.config)), device_(device), options_(options) {}

  CheckedClaim check(const Claim& claim) {
    const Line& line = line_of(claim.policy);
    CheckedClaim checked{claim, line.problem, line.few, line.more_flops, std::nullopt, ""};
    if (line.problem.empty() && claim.lowers_peak_by) find_where(line, *claim.lowers_peak_by, checked);
    return checked;
  }

 private:
  const Line& line_of(const std::string& policy) {
    const auto [found, is_new] = lines_.try_emplace(policy);
    Line& line = found->second;
    if (!is_new) return line;
    const RunConfig& config = loaded_.config;
    const int64_t tokens = family_.facts(config).tokens * (config.data.batch / config.train.accumulate);
    try {
      line.few = peaks_at(policy, tokens, &line.more_flops);
      line.many = peaks_at(policy, 2 * tokens);
    } catch (const ConfigError& error) {
      line.problem = error.what();
    }
    return line;
  }

  BothPeaks peaks_at(const std::string& policy, int64_t tokens, double* more_flops = nullptr) const {
    const SizedJob job = family_.of_size(loaded_.config, tokens);
    const auto planned = [&](bool on) {
      LoadedConfig loaded = loaded_;
      loaded.config = job.config;
      policies::policy_kind(policy).switch_to(loaded.config.policies, device_, on);
      return make_plan(std::move(loaded), device_, options_);
    };
    const Plan without = planned(false), with = planned(true);
    if (more_flops != nullptr) {
      *more_flops = static_cast<double>(with.step.recomputed) /
                    static_cast<double>(without.step.forward + without.step.backward);
    }
    return {job.tokens, without.memory.peak(), with.memory.peak()};
  }

  // Each peak is taken for so many bytes, and so many more a token; another phase may bind elsewhere, so that
  // what is found is a point of the next line.
  void find_where(const Line& line, double claimed, CheckedClaim& checked) const {
    constexpr int kTries = 5;
    constexpr double kNear = 0.0005;
    BothPeaks a = line.few, b = line.many;
    for (int i = 0; i < kTries && a.tokens != b.tokens; ++i) {
      const double where = crossing(a, b, claimed);
      if (!(where >= 1 && where <= static_cast<double>(kMaxTokens))) break;
      const BothPeaks found = peaks_at(checked.claim.policy, std::llround(where));
      const auto off = [&](const BothPeaks& one) { return std::abs(one.lowered_by() - claimed); };
      if (!checked.met_at || off(found) < off(*checked.met_at)) checked.met_at = found;
      if (off(found) < kNear) return;
      (off(a) > off(b) ? a : b) = found;
    }
    constexpr double kFar = 0.02;  // no size of batches is nearer than that
    if (checked.met_at && std::abs(checked.met_at->lowered_by() - claimed) < kFar) return;
    checked.met_at.reset();
    checked.never = fmt::format(
        "at no number of tokens: with {} the peak is lower by {}, with twice as many by {}",
        with_separators(line.few.tokens), parts_text(line.few.lowered_by()), parts_text(line.many.lowered_by()));
  }

  /// Tokens at which the peak is lower by `part`, on the lines through two sizes.
  static double crossing(const BothPeaks& a, const BothPeaks& b, double part) {
    const auto left = [part](const BothPeaks& one) {
      return static_cast<double>(one.with.peak.bytes) -
             (1 - part) * static_cast<double>(one.without.peak.bytes);
    };
    const double slope = (left(b) - left(a)) / static_cast<double>(b.tokens - a.tokens);
    return slope == 0 ? -1 : static_cast<double>(a.tokens) - left(a) / slope;
  }

  const LoadedConfig& loaded_;
  const ModelFamily& family_;
  const c10::Device device_;
  const planner::SimulationOptions options_;
  std::map<std::string, Line> lines_;  // by policy
};

std::string peaks_text(const BothPeaks& peaks) {
  const double part = peaks.lowered_by();
  return fmt::format("{} bytes in phase {} without, {} in phase {} with: {} {}",
                     with_separators(peaks.without.peak.bytes), peaks.without.name, with_separators(peaks.with.peak.bytes),
                     peaks.with.name, parts_text(std::abs(part)), part < 0 ? "higher" : "lower");
}

nlohmann::ordered_json json_of(const BothPeaks& peaks) {
  return {{"tokens", peaks.tokens},
          {"peak_bytes_without", peaks.without.peak.bytes},
          {"phase_without", peaks.without.name},
          {"peak_bytes_with", peaks.with.peak.bytes},
          {"phase_with", peaks.with.name},
          {"lowered_by", peaks.lowered_by()}};
}

}  // namespace

double BothPeaks::lowered_by() const {
  return 1 - static_cast<double>(with.peak.bytes) / static_cast<double>(without.peak.bytes);
}

std::vector<CheckedClaim> check_claims(const LoadedConfig& loaded, c10::Device device,
                                       const planner::SimulationOptions& options) {
  Checker checker(loaded, device, options);
  std::vector<CheckedClaim> checked;
  for (const Claim& claim : family_of(loaded.config).claims()) checked.push_back(checker.check(claim));
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
    text +=
        entry("  here", column,
              fmt::format("{} tokens in a micro-batch: {}", with_separators(one.now.tokens), peaks_text(one.now)));
    if (one.more_flops > 0 || claim.slower_by)
      text += entry("  arithmetic", column,
                    fmt::format("{} more FLOPs a step, and as much more time where they decide; time was not "
                                "measured",
                                parts_text(one.more_flops)));
    if (!claim.lowers_peak_by) continue;
    text += entry("  true", column,
                  one.met_at
                      ? fmt::format("at {} tokens: {}", with_separators(one.met_at->tokens), peaks_text(*one.met_at))
                      : one.never);
  }
  return text;
}

std::string claims_json(const std::vector<CheckedClaim>& checked) {
  const auto part = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const CheckedClaim& one : checked) {
    nlohmann::ordered_json entry = {
        {"policy", one.claim.policy},
        {"words", one.claim.words},
        {"source", one.claim.source},
        {"claimed",
         {{"lowers_peak_by", part(one.claim.lowers_peak_by)}, {"slower_by", part(one.claim.slower_by)}}},
        {"problem", one.problem},
        {"planned", nullptr},
        {"more_flops", one.more_flops},
        {"met_at", nullptr},
        {"never", one.never}};
    if (one.problem.empty()) entry["planned"] = json_of(one.now);
    if (one.met_at) entry["met_at"] = json_of(*one.met_at);
    json.push_back(std::move(entry));
  }
  return json.dump(1) + "\n";
}

}  // namespace dtk
