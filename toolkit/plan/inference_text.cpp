#include "toolkit/plan/inference_text.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string count_key(const Plan& plan) {
  return family_of(plan.loaded.config).inferred();
}

std::string leads_text(const CountTable& table, const std::string& phase) {
  std::string text;
  for (size_t i = 0; i < table.leading.size(); ++i) {
    const LeadingPhase& one = table.leading[i];
    if (one.phase != phase) continue;
    text += text.empty() ? "" : ", ";
    text += i + 1 == table.leading.size() ? fmt::format("{} and more", one.first)
                                          : fmt::format("{} to {}", one.first, one.last);
    if (!one.by.empty()) text += ", by " + one.by;
  }
  return text;
}

// Counts on no line, where the last chunk is short or a kernel pads: how far they are from the line behind
// them.
std::string alone_text(const PhasePieces& phase) {
  std::string text;
  for (size_t i = 0; i < phase.pieces.size(); ++i) {
    const LinearPiece& one = phase.pieces[i];
    const auto line = std::find_if(phase.pieces.begin() + static_cast<std::ptrdiff_t>(i), phase.pieces.end(),
                                   [](const LinearPiece& piece) { return piece.last > piece.first; });
    if (one.last > one.first || line == phase.pieces.end()) continue;
    const int64_t beside = one.at_0 - line->bytes(one.first);
    text += fmt::format("{}{} has {} bytes {} than that line", text.empty() ? "" : ", ", one.first,
                        with_separators(std::abs(beside)), beside < 0 ? "less" : "more");
  }
  return text;
}

}  // namespace

std::string inference_table_text(const std::string& name, const std::vector<InferenceRow>& rows,
                                 std::optional<int64_t> budget) {
  int64_t most = 0;
  for (const InferenceRow& row : rows) {
    if (row.problem.empty()) most = std::max(most, row.plan.memory.peak().peak.bytes);
  }
  const ByteUnit unit = unit_for(most);
  std::vector<std::vector<std::string>> cells{
      {"", std::string("peak, ") + unit.name, "phase", "host", "kept for backward", "results"}};
  if (budget) cells[0].emplace_back("fits");
  std::string problems;
  for (const InferenceRow& row : rows) {
    if (!row.problem.empty()) {
      problems += wrapped(row.name + ": " + row.problem, 0) + "\n";
      continue;
    }
    const policies::PhasePeak peak = row.plan.memory.peak();
    int64_t saved = 0;
    for (const policies::PhasePeak& phase : row.plan.memory.phases)
      saved = std::max(saved, phase.peak.of(policies::Category::saved));
    cells.push_back({row.name, in_unit(peak.peak.bytes, unit), peak.name,
                     in_unit(row.plan.memory.host.peak.bytes, unit), in_unit(saved, unit), row.results});
    if (budget) cells.back().emplace_back(row.plan.need_in(Capacity::allocator).fits(budget) ? "yes" : "no");
  }
  const Plan& plan = rows.front().plan;
  return fmt::format("{} on {}, {} {}: all policies, each left out, and none\n{}{}", name,
                     plan.memory.device.str(), *plan.loaded.inferred, count_key(plan), aligned(cells),
                     problems);
}

nlohmann::ordered_json inference_table_json(const std::vector<InferenceRow>& rows) {
  OrderedJson array = OrderedJson::array();
  for (const InferenceRow& row : rows) {
    if (row.problem.empty()) {
      OrderedJson one = plan_json(row.plan);
      one["row"] = row.name;
      one["results"] = row.results;
      array.push_back(std::move(one));
    } else {
      array.push_back({{"row", row.name}, {"problem", row.problem}});
    }
  }
  return array;
}

std::string inference_claims_text(const std::string& name, const LoadedConfig& loaded, c10::Device device,
                                  const planner::SimulationOptions& options) {
  const ModelFamily& family = family_of(loaded.config);
  std::string text = fmt::format("{} on {}, {} {}: what others claim, and what is planned\n", name,
                                 device.str(), *loaded.inferred, family.inferred());
  for (const Claim& claim : family.inference_claims(loaded.config)) {
    text += "\n" + wrapped(fmt::format("\"{}\" ({})", claim.words, claim.source), 0) + "\n";
    text += claim.policy == policies::recomputing_kind().name()
                ? entry("  planned", 11, why_no_recomputing(loaded, device, options))
                : entry("  seen", 11, claim.seen);
  }
  const Plan plan = make_plan(loaded, device, options);
  for (const CountedClaim& claim : family.counted_claims(loaded.config)) {
    const auto bytes = static_cast<int64_t>(claim.bytes(*loaded.inferred));
    text +=
        "\n" + wrapped(fmt::format("{}: {} ({})", claim.name, readable_bytes(bytes), claim.source), 0) + "\n";
    text += entry("  planned", 11,
                  exact_bytes(plan.memory.peak().peak.bytes) + ", with weights and the heads that are built");
  }
  return text;
}

std::string count_table_text(const std::string& name, const CountTable& table) {
  const Plan& last = table.plans.back();
  const std::string counted = count_key(last), each = counted.substr(0, counted.size() - 1);
  std::string text = fmt::format("{} on {}\n", name, last.memory.device.str()) +
                     wrapped(facts_of(last.loaded.config).sizes, 0) + "\n";
  for (const policies::PolicyReport& report : last.policies) text += entry(report.policy, 11, report.reason);
  std::vector<std::vector<std::string>> cells{{"phase", counted, "bytes at 0 " + counted, "a " + each}};
  for (const PhasePieces& phase : table.phases) {
    for (const LinearPiece& piece : phase.pieces) {
      cells.push_back({&piece == &phase.pieces.front() ? phase.phase : "",
                       piece.first == piece.last ? std::to_string(piece.first)
                                                 : fmt::format("{} to {}", piece.first, piece.last),
                       with_separators(piece.at_0), with_separators(piece.each)});
    }
  }
  text += aligned(cells);
  for (const PhasePieces& phase : table.phases) {
    const std::string alone = alone_text(phase);
    if (!alone.empty())
      text += wrapped(fmt::format("{}, off the line of more {} (a last chunk is short, or a kernel pads): {}",
                                  phase.phase, counted, alone),
                      0) +
              "\n";
  }
  for (const PhasePieces& phase : table.phases) {
    const std::string leads = leads_text(table, phase.phase);
    if (!leads.empty()) text += wrapped(phase.phase + " leads: " + leads, 0) + "\n";
  }
  const ByteUnit unit = unit_for(last.memory.peak().peak.bytes);
  std::vector<std::vector<std::string>> rows{
      {counted, std::string("peak, ") + unit.name, "phase", "with what a device adds", "host"}};
  const auto claims = family_of(last.loaded.config).counted_claims(last.loaded.config);
  for (const CountedClaim& claim : claims) rows[0].push_back(claim.name);
  for (const Plan& plan : table.plans) {
    const policies::PhasePeak peak = plan.memory.peak();
    const int64_t count = *plan.loaded.inferred;
    rows.push_back({std::to_string(count), in_unit(peak.peak.bytes, unit), peak.name,
                    in_unit(plan.bytes_in(Capacity::device), unit),
                    in_unit(plan.memory.host.peak.bytes, unit)});
    for (const CountedClaim& claim : claims)
      rows.back().push_back(claim.most > 0 && count > claim.most
                                ? "-"
                                : in_unit(static_cast<int64_t>(claim.bytes(count)), unit));
  }
  text += "\n" + aligned(rows);
  for (const CountedClaim& claim : claims) text += wrapped(claim.name + ": " + claim.source, 0) + "\n";
  return text + fmt::format("planned {} counts, in {:.2f} s\n", table.planned, table.seconds);
}

nlohmann::ordered_json count_table_json(const CountTable& table) {
  OrderedJson json;
  json["phases"] = OrderedJson::array();
  for (const PhasePieces& phase : table.phases) {
    OrderedJson one{{"phase", phase.phase}, {"pieces", OrderedJson::array()}};
    for (const LinearPiece& piece : phase.pieces)
      one["pieces"].push_back(
          {{"first", piece.first}, {"last", piece.last}, {"at_0", piece.at_0}, {"each", piece.each}});
    json["phases"].push_back(std::move(one));
  }
  json["leading"] = OrderedJson::array();
  for (const LeadingPhase& one : table.leading)
    json["leading"].push_back(
        {{"phase", one.phase}, {"first", one.first}, {"last", one.last}, {"by", one.by}});
  json["plans"] = OrderedJson::array();
  for (const Plan& plan : table.plans) json["plans"].push_back(plan_json(plan));
  json["planned"] = table.planned;
  json["seconds"] = table.seconds;
  return json;
}

std::string largest_count_text(const std::string& name, const LoadedConfig& asked, const LargestCount& found,
                               int64_t bytes) {
  const std::string counted = count_key(*found.largest);
  const auto row = [&](const Plan& plan) {
    return fmt::format("{} {} take {}, with what a device adds {}", *plan.loaded.inferred, counted,
                       exact_bytes(plan.memory.peak().peak.bytes),
                       exact_bytes(plan.bytes_in(Capacity::device)));
  };
  std::string text =
      fmt::format("{} {} fit {}\n", *found.largest->loaded.inferred, counted, exact_bytes(bytes));
  text += entry("largest", 11, row(*found.largest));
  text +=
      entry("next", 11, found.next ? row(*found.next) + ", which do not fit" : "none: more are not planned");
  text += set_text(asked, found.largest->loaded, "more fit");
  text += entry("planned", 11, std::to_string(found.planned) + " counts");
  return text + "\n" + plan_text(name, *found.largest);
}

std::string set_text(const LoadedConfig& asked, const LoadedConfig& taken, const std::string& why) {
  std::string text;
  for (const ConfigDifference& one : differences(asked.config, taken.config))
    text += entry("set", 11, fmt::format("{} = {}, with which {}", one.key, one.b, why));
  return text;
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += wrapped(note, 0) + "\n";
  return text;
}

nlohmann::ordered_json inference_json(nlohmann::ordered_json json, const LoadedConfig& asked,
                                      const LoadedConfig& taken, const std::vector<std::string>& notes,
                                      const std::vector<InferenceRow>& rows) {
  if (!rows.empty()) json["rows"] = inference_table_json(rows);
  json["notes"] = notes;
  json["set"] = OrderedJson::object();
  for (const ConfigDifference& one : differences(asked.config, taken.config)) json["set"][one.key] = one.b;
  return json;
}

}  // namespace dtk
