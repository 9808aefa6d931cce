#include "toolkit/report/memory_report.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;
using OrderedJson = nlohmann::ordered_json;

// `json` with what `sums` are made of.
OrderedJson with_sums(OrderedJson json, const MemorySums& sums) {
  OrderedJson categories = OrderedJson::object(), items = OrderedJson::object();
  for (const auto& [category, labels] : sums.items()) {
    int64_t total = 0;
    for (const auto& [label, bytes] : labels) {
      total += bytes;
      items[policies::name_of(category)][label] = bytes;
    }
    categories[policies::name_of(category)] = total;
  }
  json["categories"] = categories;
  json["items"] = items;
  return json;
}

// Labels of a category with the most bytes, as "  12.3 MiB  blocks.0".
std::string largest(const MemorySums& sums, Category category, size_t count) {
  std::string text;
  for (const auto& [label, bytes] : largest_first(sums.items()[category])) {
    if (count-- == 0) break;
    text += fmt::format("  {:>10}  {}\n", readable_bytes(bytes), label.empty() ? "(outside of any)" : label);
  }
  return text;
}

// So that all categories fit side by side.
std::string short_name(Category category) {
  static const std::map<Category, const char*> names = {
      {Category::parameters, "params"}, {Category::gradients, "grads"}, {Category::optimizer, "optim"},
      {Category::temporaries, "temps"}, {Category::scratch, "scr"},     {Category::frozen, "froz"},
      {Category::offloaded, "offl"}};
  const auto found = names.find(category);
  return found != names.end() ? found->second : policies::name_of(category);
}

// Null if none has any. The highest peak may be where nothing of the category is alive, as in the optimizer.
const PhasePeak* phase_with_most(const std::vector<PhasePeak>& phases, Category category) {
  const PhasePeak* most = nullptr;
  for (const PhasePeak& phase : phases) {
    if (phase.peak.of(category) > (most == nullptr ? 0 : most->peak.of(category))) most = &phase;
  }
  return most;
}

}  // namespace

OrderedJson json_of(const std::optional<TimedPairs>& time) {
  if (!time) return {};
  return {{"pairs", time->pairs},
          {"slower_by", time->slower_by},
          {"lowest", time->lowest},
          {"highest", time->highest}};
}

std::string timed_text(const TimedPairs& time) {
  return fmt::format("takes {:.1f} % {} with it ({:.1f} to {:.1f} %, {} pairs)",
                     100 * std::abs(time.slower_by), time.slower_by < 0 ? "less time" : "longer",
                     100 * time.lowest, 100 * time.highest, time.pairs);
}

std::string PolicySaving::remarks() const {
  if (!time) return note;
  return (note.empty() ? "" : note + "; ") + "a pass " + timed_text(*time);
}

std::vector<Category> used_categories(const std::vector<PhasePeak>& phases) {
  std::vector<Category> used;
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const auto holds = [&](const PhasePeak& phase) { return phase.peak.of(category) > 0; };
    if (std::any_of(phases.begin(), phases.end(), holds)) used.push_back(category);
  }
  return used;
}

std::vector<std::pair<std::string, int64_t>> largest_first(const std::map<std::string, int64_t>& items) {
  std::vector<std::pair<std::string, int64_t>> rows(items.begin(), items.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return rows;
}

OrderedJson reserved_json(const planner::Reserved& reserved) {
  return {{"bytes", reserved.bytes}, {"small_bytes", reserved.small_bytes}, {"segments", reserved.segments}};
}

policies::Traffic total(const policies::TrafficByCollective& sent) {
  policies::Traffic all;
  for (const auto& [collective, traffic] : sent) all += traffic;
  return all;
}

OrderedJson traffic_json(const policies::TrafficByCollective& sent) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [collective, traffic] : sent)
    json[collective] = {{"bytes", traffic.bytes}, {"messages", traffic.messages}};
  return json;
}

nlohmann::ordered_json memory_json(const MemoryReport& report) {
  const PhasePeak peak = report.peak();
  OrderedJson json = {{"version", 1}, {"device", report.device.str()}, {"unit", "bytes"}};
  json["peak"] = with_sums({{"bytes", peak.peak.bytes}, {"phase", peak.name}}, peak.peak);
  if (report.reserved.bytes > 0) json["reserved"] = reserved_json(report.reserved);
  json["host"] = with_sums({{"peak_bytes", report.host.peak.bytes}}, report.host.peak);
  json["phases"] = OrderedJson::array();
  for (const PhasePeak& phase : report.phases)
    json["phases"].push_back(with_sums({{"name", phase.name}, {"peak_bytes", phase.peak.bytes}}, phase.peak));
  if (report.refused) {
    json["refused"] = with_sums({{"bytes", report.refused->bytes},
                                 {"asked_by", report.refused->asked_by},
                                 {"phase", report.refused->phase},
                                 {"module_path", report.refused->module_path},
                                 {"alive_bytes", report.refused->live.bytes}},
                                report.refused->live);
  }
  if (report.ranks) {
    const auto lowest = std::min_element(report.ranks->peaks.begin(), report.ranks->peaks.end());
    const auto highest =
        std::max_element(report.ranks->peaks.begin(), report.ranks->peaks.end());  // the first
    json["ranks"] = {
        {"count", report.ranks->peaks.size()},
        {"peak_bytes",
         {{"most", *highest}, {"rank", highest - report.ranks->peaks.begin()}, {"least", *lowest}}},
        {"sent_in_step", traffic_json(report.ranks->sent)},
        {"waiting", report.ranks->waiting}};
  }
  for (const LoggedEscalation& one : report.escalations) {
    json["escalations"].push_back(
        {{"step", one.step},
         {"set", one.set},
         {"planned_bytes", one.planned_bytes ? OrderedJson(*one.planned_bytes) : OrderedJson()},
         {"room_bytes", one.room_bytes ? OrderedJson(*one.room_bytes) : OrderedJson()}});
  }
  for (const PolicySaving& saving : report.policies) {
    json["policies"].push_back({{"name", saving.report.policy},
                                {"active", saving.report.active},
                                {"reason", saving.report.reason},
                                {"lowers_peak_by", saving.bytes ? OrderedJson(*saving.bytes) : OrderedJson()},
                                {"time", json_of(saving.time)},
                                {"note", saving.note}});
  }
  return json;
}

std::string savings_table(const std::vector<PolicySaving>& savings) {
  std::string text = "by how much each policy lowers the peak of forward and backward\n";
  for (const PolicySaving& saving : savings) {
    const bool raises = saving.bytes.value_or(0) < 0;
    const std::string remarks = saving.remarks();
    const std::string unknown = saving.report.active ? "?" : "-";
    const std::string bytes = saving.bytes ? readable_bytes(std::abs(*saving.bytes)) : unknown;
    const std::string start = fmt::format("  {:<12}{:<5}{:>10}   ", saving.report.policy,
                                          saving.report.active ? "on" : "off", (raises ? "-" : "") + bytes);
    text += entry(start, 32,
                  (raises ? "raises the peak here; " : "") + (remarks.empty() ? "" : remarks + "; ") +
                      saving.report.reason);
  }
  return text;
}

std::string phase_table(const MemoryReport& report, const ByteUnit& unit) {
  std::vector<std::vector<std::string>> rows = {{"phase", "peak"}};
  for (const Category category : used_categories(report.phases)) rows[0].push_back(short_name(category));
  for (const PhasePeak& phase : report.phases) {
    rows.push_back({phase.name, in_unit(phase.peak.bytes, unit)});
    for (const Category category : used_categories(report.phases)) {
      rows.back().push_back(in_unit(phase.peak.of(category), unit));
    }
  }
  return fmt::format("peak memory by phase, {} of tensors on {}\n{}", unit.name, report.device.str(),
                     aligned(rows));
}

std::string memory_table(const MemoryReport& report) {
  const PhasePeak peak = report.peak();
  std::string text = fmt::format("{}highest: {} in {}\n", phase_table(report, unit_for(peak.peak.bytes)),
                                 readable_bytes(peak.peak.bytes), peak.name);
  if (const PhasePeak* most = phase_with_most(report.phases, Category::saved)) {
    text += fmt::format("largest saved for backward, by module path, at the peak of {}:\n{}", most->name,
                        largest(most->peak, Category::saved, 5));
  }
  const std::string temporaries = largest(peak.peak, Category::temporaries, 3);
  if (!temporaries.empty())
    text += fmt::format("largest temporaries, by operator, in {}:\n{}", peak.name, temporaries);
  if (report.host.peak.bytes > 0)
    text += "host: " + readable_bytes(report.host.peak.bytes) + " of CPU tensors\n";
  return text;
}

}  // namespace dtk
