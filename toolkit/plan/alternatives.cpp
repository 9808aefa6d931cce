#include "toolkit/plan/alternatives.h"

#include <c10/util/Exception.h>
#include <dtk/planner/plan_error.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using policies::CheckpointOptions;
using policies::Enabled;
using policies::KeepWord;

struct Candidate {
  std::string key, value;
  CheckpointOptions options;
};

Candidate with_keep(CheckpointOptions options, const policies::SegmentKeeps& keep) {
  options.keep = keep;
  return {"keep", toml_text(keep), std::move(options)};
}

Candidate with_segment(CheckpointOptions options, int64_t segment) {
  options.segment = segment;
  return {"segment", toml_text(segment), std::move(options)};
}

// Keeping all is what the policy refuses where it is asked for by name; leaving it out is the same.
Candidate keeping_all(const CheckpointOptions& now) {
  if (now.enabled != Enabled::on) return with_keep(now, KeepWord::all);
  CheckpointOptions off = now;
  off.enabled = Enabled::off;
  return {"enabled", "false", std::move(off)};
}

std::vector<Candidate> candidates_of(CheckpointOptions now, const std::vector<std::string>& results) {
  if (now.enabled == Enabled::off) now.enabled = Enabled::by_default;
  std::vector<Candidate> all = {
      keeping_all(now), with_keep(now, KeepWord::block), with_keep(now, KeepWord::offload),
      with_keep(now, std::vector<std::string>{policies::text_of(KeepWord::offload)})};
  for (const std::string& result : results) all.push_back(with_keep(now, std::vector<std::string>{result}));
  if (now.keep == KeepWord::automatic) return all;
  for (const int64_t segment : {1, 2}) {
    if (now.segment != segment) all.push_back(with_segment(now, segment));
  }
  return all;
}

bool is_off(const CheckpointOptions& options) {
  return options.enabled == Enabled::off || options.keep == KeepWord::all;
}

bool is_now(const CheckpointOptions& now, const CheckpointOptions& other) {
  return now == other || (is_off(now) && is_off(other));
}

std::vector<std::string> row(const std::string& name, const policies::PhasePeak& peak,
                             const policies::PhasePeak& host, int64_t recomputed, const ByteUnit& unit) {
  return {name, in_unit(peak.peak.bytes, unit), peak.name, in_unit(host.peak.bytes, unit),
          recomputed > 0 ? flops_text(recomputed) : "0"};
}

}  // namespace

CheckpointChoices checkpoint_choices(const Plan& plan, const CheckpointOptions& written, c10::Device device,
                                     const planner::SimulationOptions& options) {
  SteadyClock clock;
  const double begin = clock.seconds();
  const int64_t peak = plan.memory.peak().peak.bytes;
  CheckpointChoices found;
  for (Candidate& candidate : candidates_of(written, family_of(plan.loaded.config).kept_results())) {
    LoadedConfig other = plan.loaded;
    if (is_now(other.config.policies.checkpoint, candidate.options)) continue;
    other.config.policies.checkpoint = candidate.options;
    try {
      const Plan planned = make_plan(std::move(other), device, options);
      ++found.planned;
      const policies::PhasePeak highest = planned.memory.peak();
      if (highest.peak.bytes >= peak && planned.step.recomputed >= plan.step.recomputed) continue;
      found.choices.push_back(
          {candidate.key, candidate.value, highest, planned.memory.host, planned.step.recomputed});
    } catch (const ConfigError&) {
      // Refused, so nobody can choose it.
    } catch (const planner::PlanError&) {
      // The job's own plan stands.
    } catch (const c10::OutOfMemoryError&) {
      // More addresses than the machine gives.
    }
  }
  std::stable_sort(
      found.choices.begin(), found.choices.end(), [](const CheckpointChoice& a, const CheckpointChoice& b) {
        return std::pair(a.peak.peak.bytes, a.recomputed) < std::pair(b.peak.peak.bytes, b.recomputed);
      });
  found.seconds = clock.seconds() - begin;
  return found;
}

std::string checkpoint_choices_text(const Plan& plan, const CheckpointChoices& found) {
  const bool off = plan.loaded.config.policies.checkpoint.enabled == Enabled::off;
  const std::string text = fmt::format(
      "{} ({} planned, in {:.2f} s)\n",
      off ? "choices for policies.checkpoint, were it on" : "other choices for policies.checkpoint",
      found.planned, found.seconds);
  if (found.choices.empty()) return text + "none lowers the peak or recomputes less\n";
  const policies::PhasePeak peak = plan.memory.peak();
  const ByteUnit unit = unit_for(std::max(peak.peak.bytes, found.choices.back().peak.peak.bytes));
  std::vector<std::vector<std::string>> rows;
  const auto now = row("as configured", peak, plan.memory.host, plan.step.recomputed, unit);
  bool placed = false;
  for (const CheckpointChoice& one : found.choices) {
    if (!placed && one.peak.peak.bytes > peak.peak.bytes) rows.push_back(now), placed = true;
    rows.push_back(row(one.key + " = " + one.value, one.peak, one.host, one.recomputed, unit));
  }
  if (!placed) rows.push_back(now);
  rows.insert(rows.begin(), {"", std::string("peak, ") + unit.name, "phase", "host", "recomputed"});
  return text + aligned(rows);
}

nlohmann::ordered_json checkpoint_choices_json(const CheckpointChoices& found) {
  nlohmann::ordered_json json = {{"planned", found.planned}, {"seconds", found.seconds}};
  json["choices"] = nlohmann::ordered_json::array();
  for (const CheckpointChoice& one : found.choices) {
    json["choices"].push_back({{"set", fmt::format("policies.checkpoint.{}={}", one.key, one.value)},
                               {"peak_bytes", one.peak.peak.bytes},
                               {"phase", one.peak.name},
                               {"host_bytes", one.host.peak.bytes},
                               {"recomputed_flops", one.recomputed}});
  }
  return json;
}

}  // namespace dtk
