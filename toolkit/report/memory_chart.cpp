#include "toolkit/report/memory_chart.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/report/line_chart.h"

namespace dtk {
namespace {

using policies::Category;
using policies::PhasePeak;

std::string css_percent(double part) {
  return fmt::format("{:.3f}", 100 * part);
}

struct AxisUnit {
  const char* name;
  double bytes;
};

// In which `bytes` is at least 2.
AxisUnit unit_of(int64_t bytes) {
  constexpr double kibi = 1024;
  const auto value = static_cast<double>(bytes);
  if (value >= 2 * kibi * kibi * kibi) return {"GiB", kibi * kibi * kibi};
  if (value >= 2 * kibi * kibi) return {"MiB", kibi * kibi};
  if (value >= 2 * kibi) return {"KiB", kibi};
  return {"bytes", 1};
}

std::string exact(int64_t bytes) {
  return with_separators(bytes) + (std::abs(bytes) == 1 ? " byte" : " bytes");
}

// The categories of one phase side by side; `whole` bytes are the full width.
std::string bar(const PhasePeak& phase, const std::vector<Category>& categories, double whole) {
  std::string text;
  int64_t before = 0;
  const auto piece = [&](const std::string& style, const std::string& name, int64_t bytes) {
    if (bytes == 0) return;
    text += fmt::format(
        "<rect class=\"{}\" x=\"{}\" y=\"0\" width=\"{}\" height=\"10\" data-bytes=\"{}\"><title>{}, {}: {} "
        "({})</title></rect>",
        style, css_percent(static_cast<double>(before) / whole),
        css_percent(static_cast<double>(bytes) / whole), bytes, html_escaped(phase.name), name,
        readable_bytes(bytes), exact(bytes));
    before += bytes;
  };
  for (const Category category : categories) {
    const std::string name = policies::name_of(category);
    piece("c-" + name, name, phase.peak.of(category));
  }
  piece("c-whole", "all tensors", phase.peak.bytes - before);  // a device's statistics know no owners
  return text;
}

// A line across the bar, and what it says beside the measured bytes.
struct Planned {
  std::string line, text;
};

Planned planned_beside(const PhasePeak& measured, const PhasePeak* planned, double whole) {
  if (planned == nullptr) return {};
  const int64_t bytes = planned->peak.bytes, difference = measured.peak.bytes - bytes;
  return {fmt::format("<path class=\"planned\" d=\"M{0} -1V11\" data-bytes=\"{1}\"><title>{2}, planned: "
                      "{3}</title></path>",
                      css_percent(static_cast<double>(bytes) / whole), bytes, html_escaped(measured.name),
                      exact(bytes)),
          difference == 0
              ? "as planned"
              : fmt::format("plan {} {}", difference > 0 ? "+" : "-", readable_bytes(std::abs(difference)))};
}

std::string bar_row(const PhasePeak& phase, const PhasePeak* planned, bool is_peak,
                    const std::vector<Category>& categories, double whole) {
  const std::string name = html_escaped(phase.name);
  const auto [line, text] = planned_beside(phase, planned, whole);
  return fmt::format(
      "<div class=\"bar{}\"><span class=\"phase\">{}</span><svg viewBox=\"0 0 100 10\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\" data-phase=\"{}\">{}{}</svg>"
      "<span class=\"size\">{}{}{}</span></div>",
      is_peak ? " peak" : "", name, name, name, bar(phase, categories, whole), line,
      readable_bytes(phase.peak.bytes), is_peak ? " <em>peak</em>" : "",
      text.empty() ? "" : "<small>" + text + "</small>");
}

std::string bar_axis(const std::vector<double>& ticks, const AxisUnit& unit) {
  std::string text = "<div class=\"bar-axis\"><div>";
  const std::vector<std::string> labels = tick_labels(ticks);
  for (size_t i = 0; i < ticks.size(); ++i) {
    const bool last = i + 1 == ticks.size();
    text += fmt::format("<span style=\"left:{}%\"{}>{}{}</span>", css_percent(ticks[i] / ticks.back()),
                        last ? " class=\"last\"" : "", labels[i], last ? std::string(" ") + unit.name : "");
  }
  return text + "</div></div>";
}

std::string categories_legend(const std::vector<Category>& categories) {
  std::string text = "<p class=\"legend\">";
  for (const Category category : categories) {
    text += fmt::format("<span class=\"key\"><i class=\"b-{0}\"></i>{0}</span>", policies::name_of(category));
  }
  return text + "</p>";
}

std::string bytes_cell(int64_t bytes) {
  return fmt::format("<td class=\"number\" data-bytes=\"{}\">{}</td>", bytes,
                     bytes == 0 ? "<span class=\"none\">0</span>" : with_separators(bytes));
}

std::string bytes_row(const PhasePeak& phase, const std::vector<Category>& categories, bool is_peak) {
  std::string text = fmt::format("<tr{}><th scope=\"row\">{}</th>{}", is_peak ? " class=\"peak\"" : "",
                                 html_escaped(phase.name), bytes_cell(phase.peak.bytes));
  for (const Category category : categories) text += bytes_cell(phase.peak.of(category));
  return text + "</tr>";
}

std::string saving_cell(const PolicySaving& saving) {
  if (!saving.bytes) {
    return fmt::format("<td class=\"number\"><span class=\"none\">{}</span></td>",
                       saving.report.active ? "not measured" : "-");
  }
  return fmt::format("<td class=\"number\" data-bytes=\"{}\" title=\"{}\">{}{}</td>", *saving.bytes,
                     exact(*saving.bytes), *saving.bytes < 0 ? "raises it by " : "",
                     readable_bytes(std::abs(*saving.bytes)));
}

}  // namespace

std::string memory_bars(const MemoryReport& report, const std::optional<MemoryReport>& planned) {
  const std::vector<Category> categories = used_categories(report.phases);
  const PhasePeak peak = report.peak();
  const auto plan_of = [&](const PhasePeak& phase) {
    return planned ? policies::phase_named(planned->phases, phase.name) : nullptr;
  };
  int64_t highest = peak.peak.bytes;
  for (const PhasePeak& phase : report.phases)
    if (const PhasePeak* const plan = plan_of(phase)) highest = std::max(highest, plan->peak.bytes);
  const AxisUnit unit = unit_of(highest);
  const std::vector<double> ticks =
      round_ticks(0, std::max<double>(1, static_cast<double>(highest)) / unit.bytes, 6);
  std::string text = "<figure class=\"bars\">" + categories_legend(categories);
  for (const PhasePeak& phase : report.phases) {
    text += bar_row(phase, plan_of(phase), phase.name == peak.name, categories, ticks.back() * unit.bytes);
  }
  return text + bar_axis(ticks, unit) + "</figure>";
}

std::string memory_bytes_table(const MemoryReport& report) {
  const std::vector<Category> categories = used_categories(report.phases);
  const PhasePeak peak = report.peak();
  std::string text =
      "<table class=\"bytes\" data-table=\"memory\"><thead><tr><th>phase</th><th class=\"number\">peak</th>";
  for (const Category category : categories) {
    text += fmt::format("<th class=\"number\">{}</th>", policies::name_of(category));
  }
  text += "</tr></thead><tbody>";
  for (const PhasePeak& phase : report.phases) text += bytes_row(phase, categories, phase.name == peak.name);
  text += "</tbody></table>";
  if (report.host.peak.bytes > 0) {
    text +=
        fmt::format("<p>Host memory: at most <data value=\"{}\">{}</data> of CPU tensors, in phase {}.</p>",
                    report.host.peak.bytes, exact(report.host.peak.bytes), html_escaped(report.host.name));
  }
  return text;
}

std::string peak_owners_table(const MemoryReport& report) {
  constexpr size_t most = 12;
  std::vector<std::tuple<int64_t, std::string, std::string>> owners;
  for (const auto& [category, labels] : report.peak().peak.items()) {
    for (const auto& [label, bytes] : labels) owners.emplace_back(-bytes, policies::name_of(category), label);
  }
  if (owners.empty()) return "";
  std::sort(owners.begin(), owners.end());
  std::string text =
      "<table class=\"bytes\" data-table=\"owners\"><thead><tr><th>owner</th><th>of</th><th class=\"number\">"
      "bytes at the peak</th></tr></thead><tbody>";
  for (size_t i = 0; i < std::min(most, owners.size()); ++i) {
    const auto& [bytes, category, label] = owners[i];
    text += fmt::format("<tr><th scope=\"row\"><i class=\"b-{0}\"></i>{0}</th><td>{1}</td>{2}</tr>", category,
                        html_escaped(label), bytes_cell(-bytes));
  }
  text += "</tbody></table>";
  if (owners.size() > most) {
    text += fmt::format("<p class=\"note\">and {} smaller ones, in memory.json</p>", owners.size() - most);
  }
  return text;
}

std::string policies_table(const std::vector<PolicySaving>& savings) {
  if (savings.empty()) return "";
  std::string text =
      "<table data-table=\"policies\"><thead><tr><th>policy</th><th>state</th><th class=\"number\">lowers "
      "the peak by</th><th>what it does</th></tr></thead><tbody>";
  for (const PolicySaving& saving : savings) {
    const std::string remarks = saving.remarks();
    text += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td>{}<td>{}{}</td></tr>",
                        html_escaped(saving.report.policy), saving.report.active ? "on" : "off",
                        saving_cell(saving), html_escaped(saving.report.reason),
                        remarks.empty() ? "" : "<br/><small>" + html_escaped(remarks) + "</small>");
  }
  return text + "</tbody></table>";
}

}  // namespace dtk
