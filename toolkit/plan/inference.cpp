#include "toolkit/plan/inference.h"

#include <c10/util/Exception.h>
#include <dtk/planner/explain.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "toolkit/config/locations.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/largest_fit.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/train/apply_policies.h"

namespace dtk {
namespace {

using policies::Enabled;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMaxCount = int64_t{1} << 24;

// Each module a segment, as checkpointing makes them.
ModelFamily::PutIn recomputing(const LoadedConfig& loaded) {
  policies::PolicyOptions only = loaded.config.policies;
  policies::PolicyOptions::tables(only, [](const std::string& name, auto& table) {
    table.enabled = name == "attention" || name == "checkpoint" ? Enabled::by_default : Enabled::off;
  });
  return [only](models::Seam& seam, const models::NamedTensors& parameters,
                const std::vector<std::string>& paths) {
    seam.policies.clear();  // those in it stay
    put_policies_in(only, seam, parameters, paths);
  };
}

std::string why_no_checkpoint(const LoadedConfig& loaded, c10::Device device,
                              const planner::SimulationOptions& options) {
  const auto peak_with = [&](const ModelFamily::PutIn& put_in) {
    return policies::highest(plan_inference(loaded, device, options, put_in).memory.device).peak.bytes;
  };
  return fmt::format(
      "no backward pass: 0 bytes are kept, so recomputing frees none; the peak with it is {} bytes, without "
      "{}",
      peak_with(recomputing(loaded)), peak_with(nullptr));
}

// The key by which somebody asks for the policy in this very job; "": nobody does. What a configuration says
// for its training is another matter.
std::string asked_here(const LoadedConfig& loaded, const policies::PolicyKind& kind) {
  const std::string table = "policies." + kind.name() + ".", enabled = table + "enabled";
  for (const auto& [key, origin] : loaded.origins) {
    if (key.starts_with(table) && origin.source == Origin::Source::set) return key;
  }
  const bool is_on = kind.enabled(loaded.config.policies) == Enabled::on;
  return is_on && !has_end(loaded.config.train) ? enabled : "";
}

std::string count_key(const Plan& plan) {
  return family_of(plan.loaded.config).inferred();
}

LoadedConfig with_count(LoadedConfig loaded, int64_t count) {
  loaded.inferred = count;
  return loaded;
}

// Lines take their neighbours that lie on them; a count alone lies on any through it, and takes none.
std::vector<LinearPiece> joined(std::vector<LinearPiece> pieces) {
  const auto holds = [](const LinearPiece& line, const LinearPiece& other) {
    return line.last > line.first && line.bytes(other.first) == other.bytes(other.first) &&
           line.bytes(other.last) == other.bytes(other.last);
  };
  for (size_t i = 0; i + 1 < pieces.size();) {
    LinearPiece &one = pieces[i], &next = pieces[i + 1];
    if (!holds(one, next) && !holds(next, one)) {
      ++i;
      continue;
    }
    const LinearPiece line = holds(one, next) ? one : next;
    one = {one.first, next.last, line.at_0, line.each};
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;  // what stands before may lie on it now
  }
  // Counts alone that are on a line with their neighbours, each of which is known.
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    LinearPiece& one = pieces[i];
    while (i + 1 < pieces.size() && pieces[i + 1].first == pieces[i + 1].last) {
      const LinearPiece& next = pieces[i + 1];
      if (one.first == one.last) {
        one.each = next.at_0 - one.at_0;
        one.at_0 -= one.each * one.first;
      } else if (one.bytes(next.first) != next.at_0) {
        break;
      }
      one.last = next.last;
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return pieces;
}

}  // namespace

PlannedRun plan_inference(const LoadedConfig& loaded, c10::Device device,
                          const planner::SimulationOptions& options, const ModelFamily::PutIn& put_in) try {
  PlannedRun planned;
  planned.memory = planner::simulate(
      device,
      [&](const planner::EndOfPlan&) {
        planned.policies =
            family_of(loaded.config).infer_planned(loaded.config, device, *loaded.inferred, put_in);
      },
      options);
  return planned;
} catch (const policies::PolicyError& error) {
  throw located(error, loaded.locations);
}

std::vector<std::string> policies_without_use(const LoadedConfig& loaded, c10::Device device,
                                              const planner::SimulationOptions& options) {
  std::vector<std::string> lines;
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    if (kind->acts_without_gradient()) continue;
    const Enabled enabled = kind->enabled(loaded.config.policies);
    if (enabled == Enabled::off) continue;
    const std::string key = asked_here(loaded, *kind);
    const std::string why = kind->name() == "checkpoint" && (!key.empty() || enabled == Enabled::on)
                                ? why_no_checkpoint(loaded, device, options)
                                : "nothing is trained here, so that it has nothing to do";
    if (!key.empty())
      throw ConfigError(location_of(loaded, key) + setting_of(loaded.config, key) +
                        " has no effect on a job that only infers: " + why + "; remove it");
    if (enabled == Enabled::by_default) continue;
    lines.push_back(kind->name() + ": " + why);
  }
  return lines;
}

std::vector<InferenceRow> inference_table(const LoadedConfig& loaded, c10::Device device,
                                          const planner::SimulationOptions& options) {
  std::vector<InferenceRow> rows;
  const auto add = [&](const std::string& name, const policies::PolicyOptions& changed,
                       const std::string& results = "") {
    LoadedConfig one = loaded;
    one.config.policies = changed;
    InferenceRow row{name, {}, results, {}};
    try {
      row.plan = make_plan(std::move(one), device, options);
    } catch (const ConfigError& error) {
      row.problem = first_line(error.what());
    } catch (const c10::Error& error) {  // more bytes than addresses
      row.problem = first_line(error.what_without_backtrace());
    }
    rows.push_back(std::move(row));
  };
  const policies::PolicyOptions& all = loaded.config.policies;
  add("all, as configured", all);
  policies::PolicyOptions none = all;
  for (const policies::PolicyKind* const kind : policies::inference_kinds()) {
    for (const policies::OtherSetting& part : kind->parts_left_out(all))
      add(part.other, part.options, part.results);
    if (!kind->is_on(all, device)) continue;
    kind->switch_to(none, device, false);
    policies::PolicyOptions without = all;
    kind->switch_to(without, device, false);
    add("without " + kind->name(), without);
  }
  add("none", none);
  return rows;
}

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

std::string inference_table_json(const std::vector<InferenceRow>& rows) {
  OrderedJson array = OrderedJson::array();
  for (const InferenceRow& row : rows) {
    if (row.problem.empty()) {
      OrderedJson one = OrderedJson::parse(plan_json(row.plan));
      one["row"] = row.name;
      one["results"] = row.results;
      array.push_back(std::move(one));
    } else {
      array.push_back({{"row", row.name}, {"problem", row.problem}});
    }
  }
  return array.dump(1) + "\n";
}

std::vector<LinearPiece> linear_pieces(int64_t most, const std::function<int64_t(int64_t)>& bytes_of) {
  std::map<int64_t, int64_t> known;
  const auto at = [&](int64_t count) {
    const auto found = known.find(count);
    return found != known.end() ? found->second : known[count] = bytes_of(count);
  };
  const auto is_line = [&](int64_t first, int64_t last) {
    const int64_t run = last - first, rise = at(last) - at(first);
    if (rise % run != 0) return false;
    const int64_t each = rise / run, middle = first + run / 2;
    for (const int64_t count : {middle, first + 1, last - 1}) {
      if (at(count) != at(first) + each * (count - first)) return false;
    }
    return true;
  };
  std::vector<LinearPiece> pieces;
  const std::function<void(int64_t, int64_t)> look = [&](int64_t first, int64_t last) {
    if (first == last) {
      pieces.push_back({first, first, at(first), 0});
    } else if (last - first > 1 && is_line(first, last)) {
      const int64_t each = (at(last) - at(first)) / (last - first);
      pieces.push_back({first, last, at(first) - each * first, each});
    } else {
      const int64_t middle = first + (last - first) / 2;
      look(first, middle);
      look(middle + 1, last);
    }
  };
  look(1, most);
  return joined(std::move(pieces));
}

CountTable plan_counts(const LoadedConfig& loaded, c10::Device device, const std::vector<int64_t>& counts,
                       const planner::SimulationOptions& options) {
  SteadyClock clock;
  const double begin = clock.seconds();
  CountTable table;
  std::map<int64_t, Plan> plans;
  const auto plan_of = [&](int64_t count) -> const Plan& {
    const auto found = plans.find(count);
    if (found != plans.end()) return found->second;
    return plans.emplace(count, make_plan(with_count(loaded, count), device, options)).first->second;
  };
  const int64_t most = counts.back();
  for (const policies::PhasePeak& phase : plan_of(most).memory.phases) {
    const auto bytes_of = [&](int64_t count) {
      const policies::PhasePeak* const found =
          policies::phase_named(plan_of(count).memory.phases, phase.name);
      return found == nullptr ? 0 : found->peak.bytes;
    };
    table.phases.push_back({phase.name, linear_pieces(most, bytes_of)});
  }
  // Where pieces of any phase begin, and where one of two lines overtakes the other.
  for (int64_t count = 1; count <= most; ++count) {
    const PhasePieces* highest = nullptr;
    int64_t bytes = std::numeric_limits<int64_t>::min();
    for (const PhasePieces& phase : table.phases) {
      const auto piece = std::find_if(phase.pieces.begin(), phase.pieces.end(),
                                      [&](const LinearPiece& one) { return count <= one.last; });
      if (piece->bytes(count) <= bytes) continue;
      bytes = piece->bytes(count);
      highest = &phase;
    }
    if (!table.leading.empty() && table.leading.back().phase == highest->phase) {
      table.leading.back().last = count;
    } else {
      table.leading.push_back({highest->phase, "", count, count});
    }
  }
  for (LeadingPhase& leading : table.leading) {
    const planner::Observed seen = planner::observe(
        device, [&] { return plan_inference(with_count(loaded, leading.last), device, options).memory; });
    const auto place = seen.places.find(leading.phase);
    if (place == seen.places.end()) continue;
    leading.by =
        place->second.operation + (place->second.path.empty() ? std::string() : " in " + place->second.path);
  }
  for (const int64_t count : counts) table.plans.push_back(plan_of(count));
  table.planned = std::ssize(plans);
  table.seconds = clock.seconds() - begin;
  return table;
}

std::string inference_claims_text(const std::string& name, const LoadedConfig& loaded, c10::Device device,
                                  const planner::SimulationOptions& options) {
  const ModelFamily& family = family_of(loaded.config);
  std::string text = fmt::format("{} on {}, {} {}: what others claim, and what is planned\n", name,
                                 device.str(), *loaded.inferred, family.inferred());
  for (const Claim& claim : family.inference_claims(loaded.config)) {
    text += "\n" + wrapped("\"" + claim.words + "\" (" + claim.source + ")", 0) + "\n";
    text += claim.policy == "checkpoint" ? entry("  planned", 11, why_no_checkpoint(loaded, device, options))
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

static std::string leads_text(const CountTable& table, const std::string& phase) {
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
static std::string alone_text(const PhasePieces& phase) {
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
      text += wrapped(phase.phase + ", off the line of more " + counted +
                          " (a last chunk is short, or a kernel pads): " + alone,
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

std::string count_table_json(const CountTable& table) {
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
  for (const Plan& plan : table.plans) json["plans"].push_back(OrderedJson::parse(plan_json(plan)));
  json["planned"] = table.planned;
  json["seconds"] = table.seconds;
  return json.dump(1) + "\n";
}

// The job as configured, then with what is tighter.
static std::vector<LoadedConfig> choices_of(const LoadedConfig& loaded, c10::Device device) {
  std::vector<LoadedConfig> choices{loaded};
  for (const policies::PolicyKind* const kind : policies::inference_kinds()) {
    for (policies::PolicyOptions& one : kind->tighter(loaded.config.policies, device)) {
      choices.push_back(loaded);
      choices.back().config.policies = std::move(one);
    }
  }
  return choices;
}

LoadedConfig within_budget(const LoadedConfig& loaded, c10::Device device, int64_t budget,
                           const planner::SimulationOptions& options) {
  for (LoadedConfig& choice : choices_of(loaded, device)) {
    if (make_plan(choice, device, options).need_in(Capacity::allocator).fits(budget))
      return std::move(choice);
  }
  return loaded;
}

LargestCount largest_planned_count(const LoadedConfig& loaded, c10::Device device, int64_t bytes,
                                   const planner::SimulationOptions& options) {
  const std::vector<LoadedConfig> choices = choices_of(loaded, device);
  LargestCount best;
  int64_t planned = 0;
  for (const LoadedConfig& one : choices) {
    LargestCount found;
    const LargestFit fit = largest_within(kMaxCount, bytes, [&](int64_t count) {
      Plan plan = make_plan(with_count(one, count), device, options);
      ++planned;
      const int64_t taken = plan.bytes_in(Capacity::device);
      (taken <= bytes ? found.largest : found.next) = std::move(plan);
      return taken;
    });
    const bool is_first = &one == &choices.front();
    if (is_first || fit.fitting > (best.largest ? *best.largest->loaded.inferred : 0))
      best = std::move(found);
  }
  best.planned = planned;
  return best;
}

std::string set_text(const LoadedConfig& asked, const LoadedConfig& taken, const std::string& why) {
  std::string text;
  for (const ConfigDifference& one : differences(asked.config, taken.config))
    text += entry("set", 11, one.key + " = " + one.b + ", with which " + why);
  return text;
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += wrapped(note, 0) + "\n";
  return text;
}

std::string inference_json(const std::string& object, const LoadedConfig& asked, const LoadedConfig& taken,
                           const std::vector<std::string>& notes, const std::vector<InferenceRow>& rows) {
  OrderedJson json = OrderedJson::parse(object);
  if (!rows.empty()) json["rows"] = OrderedJson::parse(inference_table_json(rows));
  json["notes"] = notes;
  json["set"] = OrderedJson::object();
  for (const ConfigDifference& one : differences(asked.config, taken.config)) json["set"][one.key] = one.b;
  return json.dump(1) + "\n";
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

}  // namespace dtk
