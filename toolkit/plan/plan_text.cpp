#include "toolkit/plan/plan_text.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;

std::string line(const char* name, const std::string& text) {
  return entry(name, 11, text);
}

std::string first_line_of(const std::string& name, const Plan& plan) {
  const RunConfig& config = plan.loaded.config;
  if (plan.loaded.inferred)
    return fmt::format("{} on {}, {} {}: planned, nothing was computed\n", name, plan.memory.device.str(),
                       *plan.loaded.inferred, family_of(config).inferred());
  const int64_t micro = config.train.accumulate;
  return fmt::format(
             "{} on {}, data.batch = {}{}: planned, nothing was computed\n", name, plan.memory.device.str(),
             config.data.batch,
             (micro > 1 ? fmt::format(" in {} micro-batches of {}", micro, config.data.batch / micro) : "") +
                 (plan.loaded.ranks > 1 ? fmt::format(", rank {} of {}", plan.rank, plan.loaded.ranks)
                                        : "")) +
         (config.memory.split > 1
              ? fmt::format("{} samples go through the model at a time: memory.split = {}\n",
                            samples_at_once(config), config.memory.split)
              : "");
}

// That of the peak, of which most of what is told is a part.
ByteUnit unit_of(const Plan& plan) {
  return unit_for(plan.memory.peak().peak.bytes);
}

std::string exact_text(int64_t bytes, const ByteUnit& unit) {
  return fmt::format("{} ({} bytes)", with_unit(bytes, unit), bytes);
}

std::string peak_text(const PhasePeak& peak, const ByteUnit& unit) {
  return exact_text(peak.peak.bytes, unit) + " in phase " + peak.name;
}

// "16 blocks.0, 12 blocks.1, 40 others"
std::string largest_items(const std::map<std::string, int64_t>& items, size_t count, const ByteUnit& unit) {
  const auto rows = largest_first(items);
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(count, rows.size()); ++i) {
    const auto& [label, bytes] = rows[i];
    shown.push_back((label.empty() ? "outside of all" : label) + " " + in_unit(bytes, unit));
  }
  if (rows.size() > count) shown.push_back(fmt::format("{} more", rows.size() - count));
  return listed(shown, ", ");
}

std::string peak_items(const MemorySums& sums, const ByteUnit& unit) {
  constexpr size_t items_column = 32, shown = 3;
  std::string text;
  for (const auto& [category, items] : sums.items()) {
    const int64_t bytes = sums.of(category);
    const std::string start = fmt::format("  {:<13}{:>7}{:>6}", policies::name_of(category),
                                          in_unit(bytes, unit), percent_text(bytes, sums.bytes));
    text += entry(start, items_column, largest_items(items, shown, unit));
    if (category != Category::saved) continue;
    text += entry("", items_column, "by operator: " + largest_items(sums.by_operator(category), shown, unit));
  }
  return text;
}

std::string folded_text(const std::map<std::string, int64_t>& folded) {
  if (folded.empty()) return "every pass of every loop";
  std::vector<std::string> loops;
  for (const auto& [loop, passes] : folded) loops.push_back(fmt::format("{} of the {}", passes, loop));
  return "all but " + listed(loops, " and ") + ", which repeat";
}

std::string precisions_text(const Plan& plan, const ByteUnit& unit) {
  std::vector<std::string> each;
  for (const PossiblePrecision& one : plan.precisions)
    each.push_back(fmt::format("{} {} in {}", policies::text_of(one.precision),
                               with_unit(one.peak_bytes, unit), one.phase));
  const std::string taken = policies::text_of(plan.loaded.config.policies.precision.cpu);
  const std::string text = listed(each, ", ") + "; ";
  switch (plan.of_precision) {
    case PlannedPrecision::only_fitting:
      return fmt::format("{}training takes {}, as only that fits memory.budget", text, taken);
    case PlannedPrecision::smaller:
      return text + "neither fits memory.budget; this is the smaller";
    case PlannedPrecision::larger:
      break;
  }
  return text + "training measures which is faster and its saved configuration keeps it; this is the larger";
}

// `known` is left out where "".
std::string scratch_text(size_t not_known, const std::string& known) {
  std::vector<std::string> parts;
  if (!known.empty()) parts.push_back(known);
  if (not_known > 0)
    parts.push_back(
        fmt::format("what {} for {} while {} is told only by running {}, and is counted as 0; "
                    "--calibration here runs {}",
                    not_known == 1 ? "1 operator takes" : fmt::format("{} operators take", not_known),
                    not_known == 1 ? "itself" : "themselves", not_known == 1 ? "it runs" : "they run",
                    not_known == 1 ? "it" : "them", not_known == 1 ? "it" : "them"));
  return parts.empty() ? "" : line("scratch", listed(parts, "; "));
}

std::string scratch_text(const planner::PlannedScratch& scratch, const ByteUnit& unit) {
  return scratch_text(scratch.not_known.size(),
                      scratch.source.empty()
                          ? ""
                          : fmt::format("{} calls from {}, at most {}", scratch.measured_calls,
                                        scratch.source, with_unit(scratch.largest, unit)));
}

std::string term_text(const planner::DeviceTerm& term, const ByteUnit& unit) {
  return term.known ? with_unit(term.bytes, unit) : "not known";
}

// Only the sums; `--explain` and `--json` have each term's formula and source.
std::string terms_text(const std::vector<planner::DeviceTerm>& terms, const ByteUnit& unit) {
  std::vector<std::string> device, host;
  bool measured = false;
  for (const planner::DeviceTerm& term : terms) {
    measured = measured || term.measured;
    if (!term.booked && term.known && term.bytes > 0)  // of those not known the verdict speaks
      (term.on_host ? host : device).push_back(term.name + " " + in_unit(term.bytes, unit));
  }
  if (device.empty()) return "";
  return line("beside", fmt::format("{} that a device adds: {}{}; by LibTorch's sources, the context an "
                                    "estimate{}",
                                    with_unit(planner::bytes_beside(terms), unit), listed(device, ", "),
                                    host.empty() ? "" : "; to host memory " + listed(host, ", "),
                                    measured ? "" : ", not measured here"));
}

std::string sent_text(const policies::TrafficByCollective& sent, const ByteUnit& unit) {
  std::vector<std::string> parts;
  for (const auto& [collective, traffic] : sent)
    parts.push_back(fmt::format("{} {}", collective, in_unit(traffic.bytes, unit)));
  const policies::Traffic all = total(sent);
  return fmt::format("{} in {} messages a step, by each rank: {}", exact_text(all.bytes, unit), all.messages,
                     listed(parts, ", "));
}

// Of all rows together.
std::string scratch_text(const std::vector<PlanRow>& rows) {
  planner::PlannedScratch all;
  if (!rows.front().plan.memory.device.is_cpu()) return "";
  for (const PlanRow& row : rows)
    all.not_known.insert(row.plan.scratch.not_known.begin(), row.plan.scratch.not_known.end());
  return scratch_text(all.not_known.size(), "");
}

// Each term with its formula, source and switch.
std::string terms_table(const std::vector<planner::DeviceTerm>& terms, const ByteUnit& unit) {
  std::string text;
  for (const planner::DeviceTerm& term : terms) {
    text +=
        fmt::format("  {}: {}{}{}\n", term.name, term_text(term, unit), term.on_host ? " of host memory" : "",
                    term.booked ? ", in the peaks as scratch" : "");
    for (const auto& [name, what] :
         {std::pair("formula", term.formula), std::pair("source", term.source),
          std::pair("off", "--no-term " + term.name), std::pair("measured", measured_text(term))})
      text += entry(std::string("    ") + name, 13, what);
  }
  return text.empty() ? "" : "\nwhat a device adds\n" + text;
}

// What forward operators that a steady step's backward recomputes cost.
std::string recomputed_text(const Plan& plan) {
  return plan.step.recomputed == 0 ? "0" : flops_text(plan.step.recomputed);
}

// Of a steady step of one rank, which runs its part of the batch.
std::string step_flops_text(const Plan& plan) {
  const int64_t samples = plan.loaded.config.data.batch / plan.loaded.ranks;
  const double per_sample = static_cast<double>(plan.step.forward) / 2e9 / static_cast<double>(samples);
  return fmt::format("{} forward, {:.4g} GMAC a sample; {} backward; {} recomputed",
                     flops_text(plan.step.forward), per_sample, flops_text(plan.step.backward),
                     plan.step.recomputed == 0 ? "no FLOPs" : recomputed_text(plan));
}

// --- what a policy's switch changes and why ---------------------------------------------------------------

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

// "rises by 3.5 GiB"
std::string moves_by(int64_t change, const ByteUnit& unit) {
  return (change > 0 ? "rises by " : "falls by ") + exact_text(std::abs(change), unit);
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
  return fmt::format("{} {} {} of this peak, which falls in phase {}", listed(names, " and "),
                     names.size() == 1 ? "is" : "are", percent_text(held, peak.peak.bytes), peak.name);
}

// "saved +3.50 GiB, casts -0.30 GiB": what is less than a hundredth of the whole is left out, and what would
// read as 0.
std::string what_differs(const PhasePeak& now, const PhasePeak& then, const ByteUnit& unit) {
  std::vector<std::string> parts;
  const Ranked changes = ranked(then.peak, now.peak);
  for (const auto& [category, bytes] : changes) {
    if (100 * std::abs(bytes) < std::abs(changes.front().second)) break;
    if (in_unit(std::abs(bytes), unit).starts_with('<') && !parts.empty()) break;
    parts.push_back(fmt::format("{} {}{}", policies::name_of(category), bytes < 0 ? "-" : "+",
                                with_unit(std::abs(bytes), unit)));
  }
  return listed(parts, ", ");
}

// The phase whose own peak changes most, though the job's does not.
std::string elsewhere(const MemoryReport& now, const MemoryReport& then, const ByteUnit& unit) {
  const PhasePeak* most = nullptr;
  int64_t change = 0;
  for (const PhasePeak& phase : now.phases) {
    const PhasePeak* other = policies::phase_named(then.phases, phase.name);
    if (other == nullptr || std::abs(other->peak.bytes - phase.peak.bytes) <= std::abs(change)) continue;
    most = &phase;
    change = other->peak.bytes - phase.peak.bytes;
  }
  if (most == nullptr) return "no phase changes";
  return fmt::format("only below it, phase {} {} to {}", most->name, moves_by(change, unit),
                     with_unit(most->peak.bytes + change, unit));
}

// "; the policy's report: training device is the CPU, nothing to move"
std::string reason_words(const Plan& plan, const std::string& policy) {
  const policies::PolicyReport* const report = policies::report_of(plan.policies, policy);
  return report == nullptr ? "" : "; the policy's report: " + report->reason;
}

std::string effect_words(const Plan& plan, const PolicyEffect& effect) {
  if (!effect.switched) return "cannot be switched: " + effect.problem;
  const MemoryReport& other = effect.switched->memory;
  const std::string when = switch_words(effect);
  const PhasePeak now = plan.memory.peak(), then = other.peak();
  const int64_t change = then.peak.bytes - now.peak.bytes;
  const int64_t of_host = other.host.peak.bytes - plan.memory.host.peak.bytes;
  const ByteUnit unit = unit_of(plan);
  const std::string host = of_host == 0 ? "" : "; host memory " + moves_by(of_host, unit);
  if (change == 0) {
    return fmt::format("0 bytes: {}; {}, {}{}{}", what_a_peak_is(now), when,
                       elsewhere(plan.memory, other, unit), host,
                       reason_words(effect.on ? plan : *effect.switched, effect.policy));
  }
  return fmt::format("{}, the peak {} to {}, in phase {}: {}{}", when, moves_by(change, unit),
                     with_unit(then.peak.bytes, unit), then.name, what_differs(now, then, unit), host);
}

// What plan_table() and explain_policies() switch policies to, three a line.
std::string baselines(const LoadedConfig& loaded) {
  std::string text;
  size_t count = 0;
  for (const policies::PolicyKind* const kind : policies::policy_kinds(loaded.ranks)) {
    if (count > 0) text += count % 3 == 0 ? ";\n" : "; ";
    text += kind->baseline(loaded.config.policies);
    ++count;
  }
  return text + "\n";
}

}  // namespace

std::string measured_text(const planner::DeviceTerm& term) {
  return term.measured.value_or("never");
}

std::string switch_words(const PolicyEffect& effect) {
  return effect.on ? policies::policy_kind(effect.policy).off_words() : "switched on";
}

std::vector<std::string> not_counted(const Plan& plan) {
  std::vector<std::string> names;
  if (const size_t operators = plan.scratch.not_known.size(); operators > 0)
    names.push_back("scratch of " + count_text(operators, "operator"));
  for (const planner::DeviceTerm& term : plan.terms) {
    if (!term.known) names.push_back(term.name);
  }
  return names;
}

// "; not known: convolution workspaces"
static std::string unknown_text(std::vector<std::string> names) {
  for (std::string& name : names) std::replace(name.begin(), name.end(), '_', ' ');
  return names.empty() ? "" : "; unknown, and not counted: " + listed(names, " and ");
}

// A budget is of what LibTorch allocates: of a device's need without its context.
static std::string budget_text(const Plan& plan, const ByteUnit& unit) {
  if (!plan.budget) return "";
  const MemoryNeed need = plan.need_in(Capacity::allocator);
  if (!need.fits(plan.budget)) return "; exceeds memory.budget = " + exact_bytes(*plan.budget);
  if (!plan.memory.device.is_cpu())
    return fmt::format("; the {} of it that LibTorch allocates fit memory.budget",
                       with_unit(need.bytes(), unit));
  return std::string("; fits memory.budget") +
         (plan.scratch.not_known.empty() ? "" : " but for scratch, which is not known");
}

// In the sizes that cards are sold in.
static std::string verdict_text(const Plan& plan, const ByteUnit& unit) {
  const int64_t need = plan.bytes_in(Capacity::device);
  if (plan.memory.device.is_cpu())
    return fmt::format("needs {} of memory for tensors{}", with_unit(need, unit), budget_text(plan, unit));
  std::string fits = "fits no single card of up to 141 GB";
  for (const int64_t gigabytes : {6, 8, 12, 16, 24, 32, 40, 48, 80, 141}) {
    if (need > gigabytes * 1'000'000'000) continue;
    fits = fmt::format("fits a card of {} GB", gigabytes);
    break;
  }
  return fmt::format("needs {} with what the device adds{}; {}{}", with_unit(need, unit),
                     budget_text(plan, unit), fits, unknown_text(not_counted(plan)));
}

std::string plan_summary_text(const std::string& name, const Plan& plan) {
  const ByteUnit unit = unit_of(plan);
  const auto second = plan.runner_up();
  const PhasePeak peak = plan.memory.peak(), host = plan.memory.host;
  std::string text = first_line_of(name, plan);
  text += line("verdict", verdict_text(plan, unit));
  text += line("peak", peak_text(peak, unit));
  text += line("runner-up", second ? peak_text(*second, unit) : "none");
  if (!plan.memory.device.is_cpu() || host.peak.bytes > 0)
    text += line("host", host.peak.bytes > 0 ? peak_text(host, unit) : "0 bytes");
  text += terms_text(plan.terms, unit);
  if (plan.reserved.bytes > 0)
    text +=
        line("reserved", with_unit(plan.reserved.bytes, unit) +
                             " in segments that LibTorch's allocator takes and, while there is room, keeps");
  if (plan.memory.device.is_cpu()) text += scratch_text(plan.scratch, unit);
  if (!plan.precisions.empty()) text += line("precision", precisions_text(plan, unit));
  if (plan.placement) text += line("placement", placement_text(*plan.placement));
  if (!plan.data.empty()) text += line("data", plan.data);
  if (plan.loaded.inferred) {
    for (const policies::PolicyReport& report : plan.policies)
      text += line(report.policy.c_str(), report.reason);
  }
  text += plan.loaded.inferred ? line("a pass", flops_text(plan.step.without_grad + plan.step.forward))
                               : line("a step", step_flops_text(plan));
  if (!plan.sent.empty()) text += line("sent", sent_text(plan.sent, unit));
  text += line("planned", fmt::format("{}, in {:.2f} s", folded_text(plan.folded), plan.seconds));
  const DataOptions& data = plan.loaded.config.data;
  if (!plan.loaded.inferred && !data.drop_last && !data.samples && data.batch > 1) {
    text += line("last batch", fmt::format("of an epoch, as data.samples is not given: taken to have {} "
                                           "samples, the most it can",
                                           data.batch - 1));
  }
  return text;
}

std::string plan_tables_text(const Plan& plan) {
  const ByteUnit unit = unit_of(plan);
  const PhasePeak peak = plan.memory.peak(), host = plan.memory.host;
  std::string text =
      fmt::format("at the peak, with the largest of each, {}:\n", unit.name) + peak_items(peak.peak, unit);
  if (host.peak.bytes > 0)
    text += fmt::format("\nin host memory at its peak, {}:\n", unit.name) + peak_items(host.peak, unit);
  return text + "\n" + phase_table(plan.memory, unit);
}

std::string plan_text(const std::string& name, const Plan& plan) {
  return plan_summary_text(name, plan) + "\n" + plan_tables_text(plan);
}

std::string plan_table_text(const std::string& name, const std::vector<PlanRow>& rows,
                            std::optional<int64_t> budget, double seconds) {
  std::vector<std::vector<std::string>> cells(1);
  const LoadedConfig& loaded = rows.front().plan.loaded;
  for (const policies::PolicyKind* const kind : policies::policy_kinds(loaded.ranks))
    cells[0].push_back(kind->name());
  const ByteUnit unit = unit_of(rows.back().plan);  // the highest
  cells[0].insert(cells[0].end(), {std::string("peak, ") + unit.name, "phase", "host", "recomputed"});
  if (budget) cells[0].push_back("fits");
  for (const PlanRow& row : rows) {
    const PhasePeak peak = row.plan.memory.peak();
    std::vector<std::string> line;
    for (const bool on : row.on) line.push_back(on ? "on" : "off");
    const int64_t host = row.plan.memory.host.peak.bytes;
    line.insert(line.end(),
                {in_unit(peak.peak.bytes, unit), peak.name, in_unit(host, unit), recomputed_text(row.plan)});
    if (budget) line.push_back(row.plan.need_in(Capacity::allocator).fits(budget) ? "yes" : "no");
    cells.push_back(std::move(line));
  }
  const std::optional<CheckpointPlacement>& placement = rows.front().plan.placement;
  return fmt::format(
      "{}all {} combinations of the policies, in {:.2f} s; recomputed: forward FLOPs that "
      "backward recomputes\noff is: {}{}{}\n{}",
      first_line_of(name, rows.front().plan), rows.size(), seconds, baselines(loaded), scratch_text(rows),
      placement ? line("placement", placement_text(*placement)) : "", aligned(cells));
}

std::string explain_text(const Plan& plan, const std::vector<PolicyEffect>& effects) {
  size_t longest = 0;
  for (const PolicyEffect& effect : effects) longest = std::max(longest, effect.policy.size());
  std::string text = "what each policy changes (the job planned with its switch in the other position)\n";
  for (const PolicyEffect& effect : effects) {
    const std::string start = fmt::format("  {:<{}}{}", effect.policy, longest + 1, effect.on ? "on" : "off");
    text += entry(start, longest + 8, effect_words(plan, effect));
  }
  text += "off is: " + baselines(plan.loaded);
  const auto& not_known = plan.scratch.not_known;
  if (plan.memory.device.is_cpu() && !not_known.empty())
    text += "\n" +
            wrapped("scratch of these operators is counted as 0: " +
                        listed(std::vector<std::string>(not_known.begin(), not_known.end()), ", "),
                    0) +
            "\n";
  return text + terms_table(plan.terms, unit_of(plan));
}

std::string largest_batch_text(const std::string& name, const LargestPlannedBatch& found, int64_t bytes,
                               const Card* card) {
  const ByteUnit unit = unit_for(bytes);
  const auto row = [&](const Plan& plan) {
    const PhasePeak peak = plan.memory.peak();
    const int64_t whole = plan.bytes_in(Capacity::device);
    return fmt::format("data.batch = {} takes {}{}", plan.loaded.config.data.batch, peak_text(peak, unit),
                       whole > peak.peak.bytes ? ", with what a device adds " + exact_text(whole, unit) : "");
  };
  const bool known_end = found.largest->loaded.config.data.samples.has_value();
  const std::string room = card != nullptr ? fmt::format("an {} of {:.3g} GB, as its maker states",
                                                         card->shown, static_cast<double>(card->bytes) / 1e9)
                                           : exact_text(bytes, unit);
  std::string text =
      line("verdict", fmt::format("data.batch = {} fits {}{}", found.largest->loaded.config.data.batch, room,
                                  unknown_text(not_counted(*found.largest))));
  text += line("largest", row(*found.largest));
  text += line("next", found.next  ? row(*found.next) + ", which does not"
                       : known_end ? "none: data.samples leaves no more to train on"
                                   : "none: larger batches are not planned");
  if (found.all_recomputed)
    text += line("placement", "keep = \"auto\" planned as \"block\": every target recomputed");
  text +=
      line("planned", fmt::format("{} batches{}", found.planned,
                                  known_end ? "" : "; the data set was not read: it may have fewer samples"));
  return text + "\n" + plan_text(name, *found.largest);
}

}  // namespace dtk
