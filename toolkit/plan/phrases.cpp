#include "toolkit/plan/phrases.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;

// Categories by bytes, the most first; of differences, the largest change.
using Ranked = std::vector<std::pair<Category, int64_t>>;

Ranked ranked(const MemorySums& sums, const MemorySums& minus) {
  Ranked all;
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const int64_t bytes = sums.of(category) - minus.of(category);
    if (bytes != 0) all.emplace_back(category, bytes);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  return all;
}

std::string signed_bytes(int64_t bytes) {
  return (bytes < 0 ? "-" : "+") + readable_bytes(std::abs(bytes));
}

// "parameters, gradients and optimizer are 96 % of this peak": the fewest that make up nine tenths, at
// most three.
std::string what_a_peak_is(const PhasePeak& peak) {
  std::vector<std::string> names;
  int64_t held = 0;
  constexpr size_t most = 3;
  for (const auto& [category, bytes] : ranked(peak.peak, {})) {
    names.push_back(policies::name_of(category));
    held += bytes;
    if (10 * held >= 9 * peak.peak.bytes || names.size() == most) break;
  }
  return listed(names, " and ") + (names.size() == 1 ? " is " : " are ") +
         percent_text(held, peak.peak.bytes) + " of this peak, which falls in phase " + peak.name;
}

// "saved +3.50 GiB, casts -0.30 GiB": what is less than a hundredth of the whole is left out.
std::string what_differs(const PhasePeak& now, const PhasePeak& then) {
  std::vector<std::string> parts;
  const Ranked changes = ranked(then.peak, now.peak);
  for (const auto& [category, bytes] : changes) {
    if (100 * std::abs(bytes) < std::abs(changes.front().second)) break;
    parts.push_back(std::string(policies::name_of(category)) + " " + signed_bytes(bytes));
  }
  return listed(parts, ", ");
}

// The phase whose own peak changes most, though the job's does not.
std::string elsewhere(const MemoryReport& now, const MemoryReport& then) {
  const PhasePeak* most = nullptr;
  int64_t change = 0;
  for (const PhasePeak& phase : now.phases) {
    const PhasePeak* other = policies::phase_named(then.phases, phase.name);
    if (other == nullptr || std::abs(other->peak.bytes - phase.peak.bytes) <= std::abs(change)) continue;
    most = &phase;
    change = other->peak.bytes - phase.peak.bytes;
  }
  if (most == nullptr) return "no phase changes";
  return std::string("only below it, phase ") + most->name + (change > 0 ? " rises by " : " falls by ") +
         readable_bytes(std::abs(change)) + " to " + readable_bytes(most->peak.bytes + change);
}

// "; the policy's report: training device is the CPU, nothing to move"
std::string reason_words(const Plan& plan, const std::string& policy) {
  for (const policies::PolicyReport& report : plan.policies) {
    if (report.policy == policy) return "; the policy's report: " + report.reason;
  }
  return "";
}

std::string host_words(int64_t change) {
  if (change == 0) return "";
  return std::string("; host memory ") + (change > 0 ? "rises by " : "falls by ") +
         readable_bytes(std::abs(change));
}

}  // namespace

std::string recomputed_text(const Plan& plan) {
  return plan.step.recomputed == 0 ? "-" : flops_text(plan.step.recomputed);
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.2f} s", seconds);
}

std::string measured_text(const planner::DeviceTerm& term) {
  return term.measured.value_or("never");
}

std::string effect_words(const Plan& plan, const PolicyEffect& effect) {
  if (!effect.switched) return "cannot be switched: " + effect.problem;
  const std::string when =
      (effect.on ? policies::policy_kind(effect.policy).off_words() : "switched on") + ", ";
  const PhasePeak now = plan.memory.peak(), then = effect.switched->memory.peak();
  const int64_t change = then.peak.bytes - now.peak.bytes;
  const std::string host = host_words(effect.switched->memory.host.peak.bytes - plan.memory.host.peak.bytes);
  if (change == 0) {
    return "0 bytes: " + what_a_peak_is(now) + "; " + when + elsewhere(plan.memory, effect.switched->memory) +
           host + reason_words(effect.on ? plan : *effect.switched, effect.policy);
  }
  return when + "the peak " + (change > 0 ? "rises by " : "falls by ") + readable_bytes(std::abs(change)) +
         " to " + readable_bytes(then.peak.bytes) + ", in phase " + then.name + ": " +
         what_differs(now, then) + host;
}

}  // namespace dtk
