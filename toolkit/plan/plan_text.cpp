#include "toolkit/plan/plan_text.h"

#include <algorithm>
#include <utility>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/plan/phrases.h"
#include "toolkit/report/phase_table.h"

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;

std::string line(const char* name, const std::string& text) {
  constexpr size_t column = 11;
  std::string start = name;
  start.resize(column, ' ');
  return start + wrapped(text, column) + "\n";
}

std::string first_line_of(const std::string& name, const Plan& plan) {
  const RunConfig& config = plan.loaded.config;
  const int64_t micro = config.train.accumulate;
  return name + " on " + plan.memory.device.str() + ", data.batch = " + std::to_string(config.data.batch) +
         (micro > 1 ? " in " + std::to_string(micro) + " micro-batches" : "") +
         ": planned, nothing was computed\n";
}

// "16 blocks.0, 12 blocks.1, 40 others"
std::string largest_items(const std::map<std::string, int64_t>& items, size_t count) {
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const auto& [label, bytes] : items) rows.emplace_back(-bytes, label);
  std::sort(rows.begin(), rows.end());
  std::string text;
  for (size_t i = 0; i < std::min(count, rows.size()); ++i) {
    text += (i > 0 ? ", " : "") + (rows[i].second.empty() ? "outside of all" : rows[i].second) + " " +
            readable_bytes(-rows[i].first);
  }
  if (rows.size() > count) text += ", " + std::to_string(rows.size() - count) + " more";
  return text;
}

std::string peak_items(const MemorySums& sums) {
  constexpr size_t items_column = 36, shown = 3;
  std::string text;
  for (const auto& [category, items] : sums.items()) {
    const int64_t bytes = sums.of(category);
    std::string start = std::string("  ") + policies::name_of(category);
    start.resize(15, ' ');
    start += pad(readable_bytes(bytes), 10) + pad(percent_text(bytes, sums.bytes), 6);
    start.resize(items_column, ' ');
    text += start + wrapped(largest_items(items, shown), items_column) + "\n";
    if (category != Category::saved) continue;
    const std::string by_operator = "by operator: " + largest_items(sums.by_operator(category), shown);
    text += std::string(items_column, ' ') + wrapped(by_operator, items_column) + "\n";
  }
  return text;
}

std::string folded_text(const std::map<std::string, int64_t>& folded) {
  if (folded.empty()) return "every pass of every loop";
  std::vector<std::string> loops;
  for (const auto& [loop, passes] : folded) loops.push_back(std::to_string(passes) + " of the " + loop);
  return "all but " + listed(loops, " and ") + ", which repeat";
}

std::string precisions_text(const std::vector<PossiblePrecision>& precisions) {
  std::vector<std::string> each;
  for (const PossiblePrecision& one : precisions)
    each.push_back(policies::text_of(one.precision) + " " + readable_bytes(one.peak_bytes) + " in " +
                   one.phase);
  return listed(each, ", ") +
         "; training measures which is faster and its saved configuration keeps it; this is the larger";
}

std::string scratch_text(const planner::PlannedScratch& scratch) {
  std::vector<std::string> parts;
  if (!scratch.source.empty()) {
    parts.push_back(std::to_string(scratch.measured_calls) + " calls from " + scratch.source + ", at most " +
                    readable_bytes(scratch.largest));
  }
  if (!scratch.not_known.empty()) {
    const std::vector<std::string> names(scratch.not_known.begin(), scratch.not_known.end());
    parts.push_back("not known, and counted as 0, of " + std::to_string(names.size()) +
                    (names.size() == 1 ? " operator: " : " operators: ") + listed(names, ", ") +
                    "; dit-plan --calibrate measures it");
  }
  return parts.empty() ? "" : line("scratch", listed(parts, "; "));
}

std::string bytes_of(const planner::DeviceTerm& term) {
  return term.known ? readable_bytes(term.bytes) : "not known";
}

// Only the sums; `--explain` and `--json` have each term's formula and source.
std::string terms_text(const std::vector<planner::DeviceTerm>& terms) {
  std::vector<std::string> device, host;
  for (const planner::DeviceTerm& term : terms) {
    const std::string text = term.name + " " + bytes_of(term);
    if (!term.booked) (term.on_host ? host : device).push_back(text);
  }
  if (device.empty()) return "";
  const bool measured = std::any_of(
      terms.begin(), terms.end(), [](const planner::DeviceTerm& term) { return term.measured.has_value(); });
  const std::string text =
      readable_bytes(planner::bytes_beside(terms)) + " that a device adds: " + listed(device, ", ") +
      (host.empty() ? "" : "; to host memory " + listed(host, ", ")) +
      "; by LibTorch's sources, the context an estimate" + (measured ? "" : ", never measured");
  return line("beside", text);
}

// Of all rows together.
std::string scratch_text(const std::vector<PlanRow>& rows) {
  planner::PlannedScratch all;
  if (!rows.front().plan.memory.device.is_cpu()) return "";
  for (const PlanRow& row : rows)
    all.not_known.insert(row.plan.scratch.not_known.begin(), row.plan.scratch.not_known.end());
  return scratch_text(all);
}

// Each term with its formula, source and switch.
std::string terms_table(const std::vector<planner::DeviceTerm>& terms) {
  constexpr size_t column = 13;
  std::string text;
  for (const planner::DeviceTerm& term : terms) {
    text += "  " + term.name + ": " + bytes_of(term) + (term.on_host ? " of host memory" : "") +
            (term.booked ? ", in the peaks as scratch" : "") + "\n";
    const std::string off = "--no-term " + term.name, measured = measured_text(term);
    for (const auto& [name, what] : {std::pair("formula", &term.formula), std::pair("source", &term.source),
                                     std::pair("off", &off), std::pair("measured", &measured)}) {
      std::string start = std::string("    ") + name;
      start.resize(column, ' ');
      text += start + wrapped(*what, column) + "\n";
    }
  }
  return text.empty() ? "" : "\nwhat a device adds\n" + text;
}

// Of a steady step.
std::string step_flops_text(const Plan& plan) {
  const double per_sample =
      static_cast<double>(plan.step.forward) / 2e9 / static_cast<double>(plan.loaded.config.data.batch);
  return fmt::format("{} forward, {:.4g} GMAC a sample; {} backward; {} recomputed",
                     flops_text(plan.step.forward), per_sample, flops_text(plan.step.backward),
                     recomputed_text(plan));
}

}  // namespace

std::vector<std::string> not_counted(const Plan& plan) {
  std::vector<std::string> names;
  if (const size_t operators = plan.scratch.not_known.size(); operators > 0)
    names.push_back("scratch of " + std::to_string(operators) +
                    (operators == 1 ? " operator" : " operators"));
  for (const planner::DeviceTerm& term : plan.terms) {
    if (!term.known) names.push_back(term.name);
  }
  return names;
}

std::string plan_text(const std::string& name, const Plan& plan) {
  const PhasePeak peak = plan.memory.peak();
  const auto second = plan.runner_up();
  std::string text = first_line_of(name, plan);
  text += line("peak", exact_bytes(peak.peak.bytes) + " in phase " + peak.name);
  text += line("runner-up", second ? exact_bytes(second->peak.bytes) + " in phase " + second->name : "none");
  const PhasePeak& host = plan.memory.host;
  text += line("host", host.peak.bytes > 0 ? exact_bytes(host.peak.bytes) + " in phase " + host.name : "-");
  text += terms_text(plan.terms);
  if (plan.memory.device.is_cpu()) text += scratch_text(plan.scratch);
  if (!plan.precisions.empty()) text += line("precision", precisions_text(plan.precisions));
  if (plan.placement) text += line("placement", placement_text(*plan.placement));
  text += line("a step", step_flops_text(plan));
  text += line("planned", folded_text(plan.folded) + ", in " + seconds_text(plan.seconds));
  const DataOptions& data = plan.loaded.config.data;
  if (!data.drop_last && !data.samples && data.batch > 1) {
    text += line("last batch", "of an epoch, as data.samples is not given: taken to have " +
                                   std::to_string(data.batch - 1) + " samples, the most it can");
  }
  text += "\nat the peak, with the largest of each:\n" + peak_items(peak.peak);
  if (host.peak.bytes > 0) text += "\nin host memory at its peak:\n" + peak_items(host.peak);
  return text + "\n" + phase_table(plan.memory);
}

std::string plan_table_text(const std::string& name, const std::vector<PlanRow>& rows,
                            std::optional<int64_t> budget, double seconds) {
  std::vector<std::vector<std::string>> cells(1);
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) cells[0].push_back(kind->name());
  cells[0].insert(cells[0].end(), {"peak", "phase", "host", "recomputed"});
  if (budget) cells[0].push_back("fits");
  for (const PlanRow& row : rows) {
    const PhasePeak peak = row.plan.memory.peak();
    std::vector<std::string> line;
    for (const bool on : row.on) line.push_back(on ? "on" : "-");
    const int64_t host = row.plan.memory.host.peak.bytes;
    line.insert(line.end(), {readable_bytes(peak.peak.bytes), peak.name,
                             host > 0 ? readable_bytes(host) : "-", recomputed_text(row.plan)});
    if (budget) line.push_back(row.plan.need_in(Capacity::allocator).fits(budget) ? "yes" : "no");
    cells.push_back(std::move(line));
  }
  const std::optional<CheckpointPlacement>& placement = rows.front().plan.placement;
  return first_line_of(name, rows.front().plan) + "all " + std::to_string(rows.size()) +
         " combinations of the policies, in " + seconds_text(seconds) +
         "; recomputed: forward FLOPs that a step runs again\n" + scratch_text(rows) +
         (placement ? line("placement", placement_text(*placement)) : "") + "\n" + aligned(cells);
}

// What plan_table() and explain_policies() switch policies to, three a line.
std::string baselines(const policies::PolicyOptions& options) {
  std::string text;
  size_t count = 0;
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    if (count > 0) text += count % 3 == 0 ? ";\n" : "; ";
    text += kind->baseline(options);
    ++count;
  }
  return text + "\n";
}

std::string explain_text(const Plan& plan, const std::vector<PolicyEffect>& effects) {
  size_t longest = 0;
  for (const PolicyEffect& effect : effects) longest = std::max(longest, effect.policy.size());
  const size_t column = longest + 8;
  std::string text = "what each policy changes (the job planned with its switch in the other position)\n";
  for (const PolicyEffect& effect : effects) {
    std::string start = "  " + effect.policy;
    start.resize(longest + 3, ' ');
    start += effect.on ? "on" : "off";
    start.resize(column, ' ');
    text += start + wrapped(effect_words(plan, effect), column) + "\n";
  }
  return text + "off is: " + baselines(plan.loaded.config.policies) + terms_table(plan.terms);
}

std::string largest_batch_text(const std::string& name, const LargestPlannedBatch& found, int64_t bytes) {
  const auto row = [](const Plan& plan) {
    const PhasePeak peak = plan.memory.peak();
    const int64_t beside = plan.bytes_in(Capacity::device) - peak.peak.bytes;
    return "data.batch = " + std::to_string(plan.loaded.config.data.batch) + " takes " +
           exact_bytes(peak.peak.bytes) + " in phase " + peak.name +
           (beside > 0 ? ", with what a device adds " + exact_bytes(peak.peak.bytes + beside) : "");
  };
  const std::vector<std::string> not_known = not_counted(*found.largest);
  std::string text =
      line("largest",
           row(*found.largest) + ", which fits into " + exact_bytes(bytes) +
               (not_known.empty() ? "" : "; not known, and not counted: " + listed(not_known, " and ")));
  text += line("next", found.next ? row(*found.next) + ", which does not"
                       : found.largest->loaded.config.data.samples
                           ? std::string("none: data.samples leaves no more to train on")
                           : std::string("none: larger batches are not planned"));
  if (found.all_recomputed)
    text += line("placement", "keep = \"auto\" planned as \"block\": every target recomputed");
  text += line("planned", std::to_string(found.planned) + " batches" +
                              (found.largest->loaded.config.data.samples
                                   ? ""
                                   : "; the data set was not read: it may have fewer samples"));
  return text + "\n" + plan_text(name, *found.largest);
}

}  // namespace dtk
