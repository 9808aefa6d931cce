#include <dtk/toolkit/memory_report.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

namespace dtk {
namespace {

using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;
using Json = nlohmann::ordered_json;

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string pad(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

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
    text += "  " + pad(readable_bytes(rows[i].first), 10) + "  " + rows[i].second + "\n";
  }
  return text;
}

}  // namespace

std::string readable_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return std::to_string(bytes) + " B";
  if (bytes < 1024 * 1024) return format("%.1f KiB", value / 1024);
  if (bytes < 1024 * 1024 * 1024) return format("%.1f MiB", value / (1024 * 1024));
  return format("%.2f GiB", value / (1024.0 * 1024 * 1024));
}

std::string memory_json(const MemoryReport& report) {
  const PhasePeak peak = report.peak();
  Json json;
  json["version"] = 1;
  json["device"] = report.device;
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
  std::string text =
      "policies, and by how much each lowers the peak of a step (measured by leaving it out)\n";
  for (const PolicySaving& saving : savings) {
    const bool raises = saving.bytes.value_or(0) < 0;
    const std::string bytes = saving.bytes ? readable_bytes(std::abs(*saving.bytes)) : "?";
    std::string line = "  " + saving.report.policy;
    line.resize(std::max<size_t>(line.size(), 14), ' ');
    line += saving.report.active ? "on   " : "off  ";
    line += pad(raises ? "-" + bytes : bytes, 10) + "   ";
    if (raises) line += "raises the peak here; ";
    if (!saving.note.empty()) line += saving.note + "; ";
    text += line + saving.report.reason + "\n";
  }
  return text;
}

std::string memory_table(const MemoryReport& report) {
  std::vector<Category> columns;
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const bool used = std::any_of(report.phases.begin(), report.phases.end(),
                                  [&](const PhasePeak& phase) { return phase.peak.of(category) > 0; });
    if (used) columns.push_back(category);
  }
  std::string text = "peak memory by phase, MiB of tensors on " + report.device + "\n  phase          peak";
  for (const Category column : columns) text += pad(policies::name_of(column), 13);
  text += "\n";
  for (const PhasePeak& phase : report.phases) {
    text += "  " + phase.name +
            pad(format("%.1f", static_cast<double>(phase.peak.bytes) / 1048576.0), 19 - phase.name.size());
    for (const Category column : columns) {
      text += pad(format("%.1f", static_cast<double>(phase.peak.of(column)) / 1048576.0), 13);
    }
    text += "\n";
  }
  const PhasePeak peak = report.peak();
  text += "highest: " + readable_bytes(peak.peak.bytes) + " in " + peak.name + "\n";
  const std::string saved = largest(peak.peak, Category::saved, 5);
  if (!saved.empty()) text += "largest saved for backward, by module path:\n" + saved;
  const std::string temporaries = largest(peak.peak, Category::temporaries, 3);
  if (!temporaries.empty()) text += "largest temporaries, by operator:\n" + temporaries;
  if (report.host.peak.bytes > 0)
    text += "host: " + readable_bytes(report.host.peak.bytes) + " of CPU tensors\n";
  return text;
}

}  // namespace dtk
