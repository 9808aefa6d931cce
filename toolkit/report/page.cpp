#include "toolkit/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <set>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/report/line_chart.h"
#include "toolkit/report/memory_chart.h"
#include "toolkit/report/style.h"

namespace dtk {
namespace {

constexpr size_t smoothing_part = 60;  // of a curve's points, that a smoothed one reaches to each side

std::string style_sheet() {
  std::string text = report_style;
  for (int i = 0; i < policies::kCategories; ++i) {
    const std::string name = policies::name_of(static_cast<policies::Category>(i));
    text += ".c-" + name + "{fill:var(--" + name + ")}.b-" + name + "{background:var(--" + name + ")}\n";
  }
  return text + ".c-whole{fill:var(--parameters)}\n";
}

std::string duration(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  if (whole < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string date(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) == 0) {
    return "";
  }
  return text;
}

std::string base64(const std::string& bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

std::string about(const std::string& name, const std::string& value) {
  if (value.empty()) return "";
  return "<dt>" + name + "</dt><dd>" + html_escaped(value) + "</dd>";
}

// Of a share of 1: "41.2 %", "0.033 %".
std::string percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

// Images of all logged steps by the time they took: log lines are denser where the training begins.
double mean_speed(const std::vector<LoggedStep>& steps) {
  double work = 0, time = 0;
  int64_t before = 0;
  for (const LoggedStep& step : steps) {
    const auto done = static_cast<double>(std::max<int64_t>(0, step.step - before));
    before = step.step;
    if (step.images_per_second <= 0) continue;
    work += done;
    time += done / step.images_per_second;
  }
  return time > 0 ? work / time : 0;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A figure that the page begins with; `id` is for whoever reads the page by program.
std::string figure(const std::string& id, const std::string& name, double value, const std::string& shown,
                   const std::string& below = "") {
  return fmt::format("<div><span>{}</span><data id=\"{}\" value=\"{:.17g}\">{}</data>{}</div>", name, id,
                     value, html_escaped(shown),
                     below.empty() ? "" : "<small>" + html_escaped(below) + "</small>");
}

template <class Value>
Curve curve(const std::string& name, Curve::Look look, const std::vector<LoggedStep>& steps, Value value) {
  Curve curve{name, {}, look};
  for (const LoggedStep& step : steps) curve.points.emplace_back(static_cast<double>(step.step), value(step));
  return curve;
}

class Page {
 public:
  explicit Page(const RunReport& report) : report_(report), history_(report.history) {}

  std::string text() const {
    const std::filesystem::path folder = report_.folder;
    const std::string name =
        html_escaped((folder.has_filename() ? folder : folder.parent_path()).filename().string());
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>" +
           name + " - dit-train</title><style>" + style_sheet() + "</style></head>\n<body><main>\n<h1>" +
           name + "</h1>\n" + head() + figures() + "\n" + training() + "\n" + memory() + "\n" + samples() +
           "\n" + configuration() + "\n</main></body></html>\n";
  }

 private:
  std::string head() const {
    std::string begun;
    if (!history_.starts().empty() && history_.starts().front().unix_seconds > 0) {
      begun = date(history_.starts().front().unix_seconds);
    }
    const auto resumes = std::count_if(history_.starts().begin(), history_.starts().end(),
                                       [](const LoggedStart& start) { return start.resumed; });
    if (resumes > 0) {
      begun += (begun.empty() ? "" : ", ") + std::string("resumed ") +
               (resumes == 1 ? "once" : std::to_string(resumes) + " times") + ", last at step " +
               with_separators(history_.starts().back().step);
    }
    std::string text = "<dl class=\"about\">" + about("folder", report_.folder) +
                       about("state", report_.state) + about("model", report_.model) +
                       about("data", report_.data) + about("device", report_.device) +
                       about("started", begun) + "</dl>";
    if (!report_.data_note.empty()) text += "<p class=\"note\">" + html_escaped(report_.data_note) + "</p>";
    if (history_.unreadable_lines() > 0) {
      text += "<p class=\"note\">" + with_separators(history_.unreadable_lines()) +
              " lines of log.jsonl could not be read, as a crash may leave them.</p>";
    }
    return text;
  }

  std::string figures() const {
    std::string text = "<div class=\"figures\">";
    if (!history_.steps().empty()) {
      const LoggedStep& last = history_.steps().back();
      text += figure(
          "steps", "steps", static_cast<double>(last.step), with_separators(last.step),
          duration(last.seconds) + " of training" +
              (history_.starts().size() > 1 ? " in " + std::to_string(history_.starts().size()) + " processes"
                                            : ""));
      text += figure("loss", "training loss", last.loss, fmt::format("{:.4f}", last.loss),
                     "mean since the line before");
      if (!history_.validations().empty()) {
        const LoggedValidation& validation = history_.validations().back();
        text += figure("validation", "validation loss", validation.loss,
                       fmt::format("{:.4f}", validation.loss), "at step " + with_separators(validation.step));
      }
      const double speed = mean_speed(history_.steps());
      text += figure("speed", report_.sample_name + "/s", speed, fmt::format("{:.4g}", speed),
                     "mean of the training");
      if (last.mfu) {
        std::vector<double> mfu;
        for (const LoggedStep& step : history_.steps()) {
          if (step.mfu) mfu.push_back(*step.mfu);
        }
        text += figure("mfu", "MFU", median(mfu), percent(median(mfu)),
                       fmt::format("of {:.4g} TFLOP/s, median", report_.peak_flops.value_or(0) / 1e12));
      }
    }
    if (report_.memory) {
      const policies::PhasePeak peak = report_.memory->peak();
      text += figure("peak", "peak memory", static_cast<double>(peak.peak.bytes),
                     readable_bytes(peak.peak.bytes), "tensors, in phase " + peak.name);
    }
    return text + "</div>";
  }

  std::vector<double> logged(double LoggedStep::*value) const {
    std::vector<double> values;
    for (const LoggedStep& step : history_.steps()) values.push_back(step.*value);
    return values;
  }

  std::string training() const {
    const std::vector<LoggedStep>& steps = history_.steps();
    if (steps.empty()) return "<h2>Training</h2><p>No step was logged.</p>";
    const auto bold = Curve::Look::bold;
    std::string text = "<h2>Training</h2><div class=\"wide\">" + loss_chart() + "</div><div class=\"pair\">";
    text += line_chart({.id = "lr",
                        .title = "learning rate",
                        .from_zero = true,
                        .curves = {curve("learning rate", bold, steps,
                                         [](const LoggedStep& s) { return s.learning_rate; })}});
    text += line_chart({.id = "speed",
                        .title = report_.sample_name + "/s",
                        .from_zero = true,
                        .curves = {curve(report_.sample_name + "/s", bold, steps,
                                         [](const LoggedStep& s) { return s.images_per_second; })}});
    text += line_chart({.id = "gradient_norm",
                        .title = "gradient norm, before clipping",
                        .curves = {curve("gradient norm", bold, steps,
                                         [](const LoggedStep& s) { return s.gradient_norm; })}});
    if (report_.peak_flops) text += mfu_chart();
    for (const std::string& name : scores()) text += score_chart(name);
    return text + "</div>";
  }

  // Names of what the validations measured beside the loss.
  std::set<std::string> scores() const {
    std::set<std::string> names;
    for (const LoggedValidation& entry : history_.validations()) {
      for (const auto& [name, value] : entry.scores) names.insert(name);
    }
    return names;
  }

  std::string score_chart(const std::string& name) const {
    Curve curve{name, {}, Curve::Look::dots};
    for (const LoggedValidation& entry : history_.validations()) {
      const auto score = entry.scores.find(name);
      if (score != entry.scores.end()) curve.points.emplace_back(entry.step, score->second);
    }
    return line_chart({.id = name, .title = "validation: " + name, .from_zero = true, .curves = {curve}});
  }

  std::string loss_chart() const {
    const auto loss = [](const LoggedStep& step) { return step.loss; };
    const std::vector<LoggedStep>& steps = history_.steps();
    LineChart chart{.id = "loss", .title = "loss"};
    const size_t half = steps.size() / smoothing_part;
    if (half > 0) {
      const std::vector<double> values = smoothed(logged(&LoggedStep::loss), half);
      chart.curves.push_back(curve("training, as logged", Curve::Look::thin, steps, loss));
      Curve smooth{"smoothed", {}, Curve::Look::bold};
      for (size_t i = 0; i < steps.size(); ++i) {
        smooth.points.emplace_back(static_cast<double>(steps[i].step), values[i]);
      }
      chart.curves.push_back(std::move(smooth));
      chart.note = "Smoothed: mean over " + std::to_string(2 * half + 1) + " of " +
                   with_separators(static_cast<int64_t>(steps.size())) + " logged values, fewer at the ends.";
    } else {
      chart.curves.push_back(curve("training", Curve::Look::bold, steps, loss));
    }
    Curve validation{"validation", {}, Curve::Look::dots};
    for (const LoggedValidation& entry : history_.validations()) {
      validation.points.emplace_back(static_cast<double>(entry.step), entry.loss);
    }
    chart.curves.push_back(std::move(validation));
    return line_chart(chart);
  }

  std::string mfu_chart() const {
    Curve mfu{"MFU", {}, Curve::Look::bold};
    for (const LoggedStep& step : history_.steps()) {
      if (step.mfu) mfu.points.emplace_back(static_cast<double>(step.step), 100 * *step.mfu);
    }
    return line_chart({.id = "mfu",
                       .title = "MFU, %",
                       .note = fmt::format("Of {:.4g}", *report_.peak_flops / 1e12) +
                               " TFLOP/s. Three forward passes a step; recomputation is not counted.",
                       .from_zero = true,
                       .curves = {std::move(mfu)}});
  }

  std::string memory() const {
    const std::string title = "<h2>Memory</h2>";
    if (!report_.memory) return title + "<p>Not measured: memory.ledger = false.</p>";
    const MemoryReport& memory = *report_.memory;
    const bool resumed = !history_.starts().empty() && history_.starts().back().resumed;
    std::string text =
        title + "<p>Tensors on " + html_escaped(memory.device.str()) +
        " at the peak of each phase, by owner" +
        (resumed ? ", since the run was resumed at step " + with_separators(history_.starts().back().step)
                 : "") +
        ".</p>" + refusal(memory) + memory_bars(memory) + "<h3>Exact bytes</h3><div class=\"scroll\">" +
        memory_bytes_table(memory) + "</div>";
    const std::string owners = peak_owners_table(memory);
    if (!owners.empty()) {
      text += "<details><summary>The largest owners at the peak</summary><div class=\"scroll\">" + owners +
              "</div></details>";
    }
    const std::string policies = policies_table(memory.policies);
    if (!policies.empty()) {
      text +=
          "<h2>What each policy saves</h2><p>Bytes by which it lowers the peak of forward and backward, "
          "measured "
          "by leaving it out at the end of the run; the EMA by its size.</p><div class=\"scroll\">" +
          policies + "</div>";
    }
    return text;
  }

  static std::string refusal(const MemoryReport& memory) {
    if (!memory.refused) return "";
    const policies::RefusedAllocation& refused = *memory.refused;
    return "<p class=\"note\">It did not fit: " + with_separators(refused.bytes) + " bytes, asked for by " +
           html_escaped(refused.asked_by) + " in phase " + html_escaped(refused.phase) +
           (refused.module_path.empty() ? "" : " at " + html_escaped(refused.module_path)) + " with " +
           with_separators(refused.live.bytes) + " bytes alive, were refused.</p>";
  }

  std::string samples() const {
    if (report_.samples.empty() && report_.samples_note.empty()) return "";
    std::string text = "<h2>Samples</h2>";
    if (!report_.samples_note.empty()) text += "<p>" + html_escaped(report_.samples_note) + "</p>";
    if (report_.samples.empty()) return text;
    text += "<div class=\"grids\">";
    for (const ReportImage& image : report_.samples) {
      const std::string step = "step " + with_separators(image.step);
      text += "<figure><img alt=\"samples at " + step + "\" src=\"data:image/png;base64," +
              base64(image.png) + "\"/><figcaption>" + step + "</figcaption></figure>\n";
    }
    return text + "</div>";
  }

  std::string configuration() const {
    std::string text =
        "<h2>Configuration</h2><div class=\"scroll\"><table class=\"config\" data-table=\"config\"><tbody>";
    for (size_t begin = 0; begin < report_.config.size();) {
      const size_t end = std::min(report_.config.find('\n', begin), report_.config.size());
      text += configuration_row(report_.config.substr(begin, end - begin));
      begin = end + 1;
    }
    return text + "</tbody></table></div>";
  }

  // "[train]", "batch = 16  # base.toml:3" or "# depth is not set".
  static std::string configuration_row(const std::string& line) {
    if (line.empty()) return "";
    if (line.front() == '[') {
      return "<tr class=\"table\"><th colspan=\"3\">" + html_escaped(line) + "</th></tr>\n";
    }
    const size_t equals = line.find(" = ");
    if (line.front() == '#' || equals == std::string::npos) {
      return "<tr><td colspan=\"3\" class=\"unset\">" + html_escaped(line) + "</td></tr>\n";
    }
    const size_t comment = std::min(line.rfind("  # "), line.size());
    const std::string origin = comment == line.size() ? "" : line.substr(comment + 4);
    return "<tr><th scope=\"row\">" + html_escaped(line.substr(0, equals)) + "</th><td>" +
           html_escaped(line.substr(equals + 3, comment - equals - 3)) + "</td><td class=\"origin\">" +
           html_escaped(origin) + "</td></tr>\n";
  }

  const RunReport& report_;
  const RunHistory& history_;
};

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values, size_t half) {
  std::vector<double> sums = {0};
  for (const double value : values) sums.push_back(sums.back() + value);
  std::vector<double> means;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t reach = std::min({half, i, values.size() - 1 - i});
    means.push_back((sums[i + reach + 1] - sums[i - reach]) / static_cast<double>(2 * reach + 1));
  }
  return means;
}

std::string report_html(const RunReport& report) {
  return Page(report).text();
}

}  // namespace dtk
