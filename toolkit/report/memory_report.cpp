#include "toolkit/report/memory_report.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/report/phase_table.h"

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;
using Json = nlohmann::ordered_json;

void add_sums(Json& json, const MemorySums& sums) {
  Json categories = Json::object(), items = Json::object();
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
}

// Labels of a category with the most bytes, as "  12.3 MiB  blocks.0".
std::string largest(const MemorySums& sums, Category category, size_t count) {
  const auto items = sums.items();
  const auto found = items.find(category);
  if (found == items.end()) return {};
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const auto& [label, bytes] : found->second) rows.emplace_back(bytes, label);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string text;
  for (size_t i = 0; i < std::min(count, rows.size()); ++i) {
    text += "  " + pad(readable_bytes(rows[i].first), 10) + "  " +
            (rows[i].second.empty() ? "(outside of any)" : rows[i].second) + "\n";
  }
  return text;
}

struct Unit {
  const char* name;
  double bytes;
  int decimals;
};

// Few digits for the largest figure of a table.
Unit unit_for(int64_t bytes) {
  constexpr double kibi = 1024, most = 1000;
  const auto value = static_cast<double>(bytes);
  if (value < most * kibi) return {"KiB", kibi, 1};
  if (value < most * kibi * kibi) return {"MiB", kibi * kibi, 1};
  return {"GiB", kibi * kibi * kibi, 2};
}

// "-" for nothing at all: 0.0 is little.
std::string in_unit(int64_t bytes, const Unit& unit) {
  return bytes == 0 ? "-" : fmt::format("{:.{}f}", static_cast<double>(bytes) / unit.bytes, unit.decimals);
}

// So that all categories fit side by side.
std::string short_name(Category category) {
  switch (category) {
    case Category::parameters:
      return "params";
    case Category::gradients:
      return "grads";
    case Category::optimizer:
      return "optim";
    case Category::temporaries:
      return "temps";
    case Category::offloaded:
      return "offl";
    default:
      return policies::name_of(category);
  }
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

std::vector<Category> used_categories(const std::vector<PhasePeak>& phases) {
  std::vector<Category> used;
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const auto holds = [&](const PhasePeak& phase) { return phase.peak.of(category) > 0; };
    if (std::any_of(phases.begin(), phases.end(), holds)) used.push_back(category);
  }
  return used;
}

std::string memory_json(const MemoryReport& report) {
  const PhasePeak peak = report.peak();
  Json json;
  json["version"] = 1;
  json["device"] = report.device.str();
  json["unit"] = "bytes";
  json["peak"]["bytes"] = peak.peak.bytes;
  json["peak"]["phase"] = peak.name;
  add_sums(json["peak"], peak.peak);
  json["host"]["peak_bytes"] = report.host.peak.bytes;
  add_sums(json["host"], report.host.peak);
  json["phases"] = Json::array();
  for (const PhasePeak& phase : report.phases) {
    Json row;
    row["name"] = phase.name;
    row["peak_bytes"] = phase.peak.bytes;
    add_sums(row, phase.peak);
    json["phases"].push_back(std::move(row));
  }
  if (report.refused) {
    json["refused"]["bytes"] = report.refused->bytes;
    json["refused"]["asked_by"] = report.refused->asked_by;
    json["refused"]["phase"] = report.refused->phase;
    json["refused"]["module_path"] = report.refused->module_path;
    json["refused"]["alive_bytes"] = report.refused->live.bytes;
    add_sums(json["refused"], report.refused->live);
  }
  for (const PolicySaving& saving : report.policies) {
    Json row;
    row["name"] = saving.report.policy;
    row["active"] = saving.report.active;
    row["reason"] = saving.report.reason;
    row["lowers_peak_by"] = saving.bytes ? Json(*saving.bytes) : Json();
    row["note"] = saving.note;
    json["policies"].push_back(std::move(row));
  }
  return json.dump(1) + "\n";
}

std::string savings_table(const std::vector<PolicySaving>& savings) {
  constexpr size_t reason_column = 32;
  std::string text = "by how much each policy lowers the peak of forward and backward\n";
  for (const PolicySaving& saving : savings) {
    const bool raises = saving.bytes.value_or(0) < 0;
    const std::string unknown = saving.report.active ? "?" : "-";
    const std::string bytes = saving.bytes ? readable_bytes(std::abs(*saving.bytes)) : unknown;
    std::string line = "  " + saving.report.policy;
    line.resize(std::max<size_t>(line.size(), 14), ' ');
    line += saving.report.active ? "on   " : "off  ";
    line += pad(raises ? "-" + bytes : bytes, 10) + "   ";
    std::string reason = raises ? "raises the peak here; " : "";
    if (!saving.note.empty()) reason += saving.note + "; ";
    text += line + wrapped(reason + saving.report.reason, reason_column) + "\n";
  }
  return text;
}

std::string phase_table(const MemoryReport& report) {
  const Unit unit = unit_for(report.peak().peak.bytes);
  std::vector<std::vector<std::string>> rows = {{"phase", "peak"}};
  for (const Category category : used_categories(report.phases)) rows[0].push_back(short_name(category));
  for (const PhasePeak& phase : report.phases) {
    rows.push_back({phase.name, in_unit(phase.peak.bytes, unit)});
    for (const Category category : used_categories(report.phases)) {
      rows.back().push_back(in_unit(phase.peak.of(category), unit));
    }
  }
  return std::string("peak memory by phase, ") + unit.name + " of tensors on " + report.device.str() + "\n" +
         aligned(rows);
}

std::string memory_table(const MemoryReport& report) {
  const PhasePeak peak = report.peak();
  std::string text =
      phase_table(report) + "highest: " + readable_bytes(peak.peak.bytes) + " in " + peak.name + "\n";
  if (const PhasePeak* most = phase_with_most(report.phases, Category::saved)) {
    text += "largest saved for backward, by module path, at the peak of " + most->name + ":\n" +
            largest(most->peak, Category::saved, 5);
  }
  const std::string temporaries = largest(peak.peak, Category::temporaries, 3);
  if (!temporaries.empty()) text += "largest temporaries, by operator, in " + peak.name + ":\n" + temporaries;
  if (report.host.peak.bytes > 0)
    text += "host: " + readable_bytes(report.host.peak.bytes) + " of CPU tensors\n";
  return text;
}

}  // namespace dtk
