#include "toolkit/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <functional>
#include <set>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/io/base64.h"
#include "toolkit/report/line_chart.h"
#include "toolkit/report/memory_chart.h"
#include "toolkit/report/style.h"

namespace dtk {
namespace {

constexpr int64_t max_grid_width = 1040;  // pixels that a small grid is scaled up to
constexpr size_t smoothing_part = 20;     // of a curve's points, that a smoothed one reaches to each side

std::string style_sheet() {
  std::string text = report_style;
  for (int i = 0; i < policies::kCategories; ++i) {
    text += fmt::format(".c-{0}{{fill:var(--{0})}}.b-{0}{{background:var(--{0})}}\n",
                        policies::name_of(static_cast<policies::Category>(i)));
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

std::string about(const std::string& name, const std::string& value) {
  if (value.empty()) return "";
  return fmt::format("<dt>{}</dt><dd>{}</dd>", name, html_escaped(value));
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

// Of entries of the history; a `value` of nothing is no point.
template <class Entry, class Value>
Curve curve(const std::string& name, Curve::Look look, const std::vector<Entry>& entries, Value value) {
  Curve curve{name, {}, look};
  for (const Entry& entry : entries) {
    const std::optional<double> y = std::invoke(value, entry);
    if (y) curve.points.emplace_back(static_cast<double>(entry.step), *y);
  }
  return curve;
}

class Page {
 public:
  explicit Page(const RunReport& report) : report_(report), history_(report.history) {}

  std::string text() const {
    const std::filesystem::path folder = report_.folder;
    const std::string name =
        html_escaped((folder.has_filename() ? folder : folder.parent_path()).filename().string());
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\"/><title>{0} - dit-train</title><style>{1}</style>"
        "</head>\n<body><main>\n<h1>{0}</h1>\n{2}{3}\n{4}\n{5}\n{6}\n{7}\n</main></body></html>\n",
        name, style_sheet(), head(), figures(), samples(), training(), memory(), configuration());
  }

 private:
  std::string head() const {
    std::string begun;
    if (!history_.starts().empty() && history_.starts().front().unix_seconds > 0) {
      begun = date(history_.starts().front().unix_seconds);
    }
    int64_t resumes = 0, last = 0;
    for (const LoggedStart& start : history_.starts()) {
      if (!start.resumed || !start.trained) continue;
      ++resumes;
      last = start.step;
    }
    if (resumes > 0) {
      begun += fmt::format("{}resumed {}, last at step {}", begun.empty() ? "" : ", ",
                           resumes == 1 ? "once" : fmt::format("{} times", resumes), with_separators(last));
    }
    std::string text =
        fmt::format("<dl class=\"about\">{}{}{}{}{}{}</dl>", about("folder", report_.folder),
                    about("state", report_.state), about("model", report_.model), about("data", report_.data),
                    about("device", report_.device), about("started", begun));
    if (!report_.data_note.empty()) text += "<p class=\"note\">" + html_escaped(report_.data_note) + "</p>";
    if (!history_.skipped().empty()) {
      text +=
          "<p class=\"note\">" + count_text(static_cast<int64_t>(history_.skipped().size()), "step") +
          " changed nothing, as the loss or a gradient was infinite or NaN: log.jsonl names the samples.</p>";
    }
    for (const LoggedChange& one : history_.changes()) {
      text += fmt::format("<p class=\"note\">After step {} the run went on with {}.</p>",
                          with_separators(one.step), html_escaped(one.text));
    }
    for (const LoggedEscalation& one : history_.escalations()) {
      text +=
          fmt::format("<p class=\"note\">After step {} the run was refused memory and went on with {}{}.</p>",
                      with_separators(one.step), html_escaped(one.set),
                      one.planned_bytes ? ", planned to take " + exact_bytes(*one.planned_bytes) : "");
    }
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
      const auto processes = std::count_if(history_.starts().begin(), history_.starts().end(),
                                           [](const LoggedStart& start) { return start.trained; });
      text += figure("steps", "steps", static_cast<double>(last.step), with_separators(last.step),
                     duration(last.seconds) + " of training" +
                         (processes > 1 ? fmt::format(" in {} processes", processes) : ""));
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
                     readable_bytes(peak.peak.bytes), "tensors, in phase " + peak.name + since_resume());
    }
    return text + "</div>";
  }

  std::string training() const {
    const std::vector<LoggedStep>& steps = history_.steps();
    if (steps.empty()) return "<h2>Training</h2><p>No step was logged.</p>";
    const auto chart = [&](const std::string& id, const std::string& title, const std::string& note,
                           YAxis y_axis, double LoggedStep::*value) {
      return line_chart({.id = id,
                         .title = title,
                         .note = note,
                         .y_axis = y_axis,
                         .curves = {curve(title, Curve::Look::bold, steps, value)}});
    };
    std::string text = "<h2>Training</h2><div class=\"wide\">" + loss_chart() + "</div><div class=\"pair\">";
    text += chart("lr", "learning rate", "Of the step that follows, as [schedule] and [optimizer] give it.",
                  YAxis::from_zero, &LoggedStep::learning_rate);
    text += chart("speed", report_.sample_name + "/s",
                  "Trained on in a second of training, since the line of log.jsonl before; samples and "
                  "validation take no part.",
                  YAxis::from_zero, &LoggedStep::images_per_second);
    text += chart("gradient_norm", "gradient norm",
                  "Length of the gradient of all parameters together, before clipping" +
                      (report_.clip > 0 ? fmt::format(" to {:g} (optimizer.clip).", report_.clip)
                                        : std::string("; none is clipped.")),
                  YAxis::fitting, &LoggedStep::gradient_norm);
    if (report_.peak_flops) text += mfu_chart();
    text += process_chart();
    for (const std::string& name : scores()) text += score_chart(name);
    return text + "</div>";
  }

  // What the process holds, and what of it is counted: the distance stays where nothing leaks.
  std::string process_chart() const {
    const auto in_mib = [](std::optional<int64_t> bytes) {
      return bytes ? std::optional(static_cast<double>(*bytes) / (1 << 20)) : std::nullopt;
    };
    const auto process = [&](const LoggedStep& step) { return in_mib(step.process_bytes); };
    const auto counted = [&](const LoggedStep& step) { return in_mib(step.counted_bytes); };
    return line_chart({.id = "process_memory",
                       .title = "memory of the process, MiB",
                       .note = "What the process holds of the machine's memory, and what of it are tensors "
                               "that are counted below. Where nothing leaks their distance stays.",
                       .y_axis = YAxis::from_zero,
                       .curves = {curve("process", Curve::Look::bold, history_.steps(), process),
                                  curve("counted", Curve::Look::thin, history_.steps(), counted)}});
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
    const auto score = [&](const LoggedValidation& entry) {
      const auto found = entry.scores.find(name);
      return found != entry.scores.end() ? std::optional(found->second) : std::nullopt;
    };
    return line_chart({.id = name,
                       .title = "validation: " + name,
                       .note = "Of what the model draws for the held-out samples.",
                       .y_axis = YAxis::from_zero,
                       .curves = {curve(name, Curve::Look::dots, history_.validations(), score)}});
  }

  std::string loss_chart() const {
    const std::vector<LoggedStep>& steps = history_.steps();
    LineChart chart{.id = "loss", .title = "loss", .y_axis = YAxis::logarithmic};
    chart.note = "Training: mean of the steps since the line of log.jsonl before.";
    for (const LoggedChange& change : history_.changes()) {
      if (change.of_result) chart.marks.push_back(static_cast<double>(change.step));
    }
    const size_t half = steps.size() / smoothing_part;
    if (half > 0) {
      std::vector<double> losses;
      for (const LoggedStep& step : steps) losses.push_back(step.loss);
      const std::vector<double> means = smoothed(losses, half);
      size_t next = 0;
      chart.curves = {
          curve("training, as logged", Curve::Look::thin, steps, &LoggedStep::loss),
          curve("smoothed", Curve::Look::bold, steps, [&](const LoggedStep&) { return means[next++]; })};
      chart.note += fmt::format(" Smoothed: mean over {} of {} logged values, fewer at the ends.",
                                2 * half + 1, with_separators(static_cast<int64_t>(steps.size())));
    } else {
      chart.curves = {curve("training", Curve::Look::bold, steps, &LoggedStep::loss)};
    }
    chart.curves.push_back(
        curve("validation", Curve::Look::dots, history_.validations(), &LoggedValidation::loss));
    if (!history_.validations().empty()) chart.note += " Validation: mean of the held-out samples.";
    if (!chart.marks.empty()) chart.note += " Dashed: a resume changed what the weights depend on.";
    return line_chart(chart);
  }

  std::string mfu_chart() const {
    const auto percent = [](const LoggedStep& step) {
      return step.mfu ? std::optional(100 * *step.mfu) : std::nullopt;
    };
    return line_chart(
        {.id = "mfu",
         .title = "MFU, %",
         .note = fmt::format("Model FLOPs utilisation, of {:.4g} TFLOP/s: forward and backward; "
                             "recomputation is not counted.",
                             *report_.peak_flops / 1e12),
         .y_axis = YAxis::from_zero,
         .curves = {curve("MFU", Curve::Look::bold, history_.steps(), percent)}});
  }

  // What is measured of memory is of the last process alone.
  std::string since_resume() const {
    if (history_.starts().empty() || !history_.starts().back().resumed) return "";
    return ", since the run was resumed at step " + with_separators(history_.starts().back().step);
  }

  std::string planned_words() const {
    if (!report_.planned) return "";
    return " The line across a bar is what was planned before the run began" +
           (report_.not_planned.empty() ? "" : "; not known then, and counted as 0: " + report_.not_planned) +
           ".";
  }

  std::string memory() const {
    const std::string title = "<h2>Memory</h2>";
    if (!report_.memory) return title + "<p>Not measured: memory.ledger = false.</p>";
    const MemoryReport& memory = *report_.memory;
    std::string text = fmt::format(
        "{}<p>Tensors on {} at the peak of each phase, by owner{}.{}</p>{}{}<details><summary>Exact "
        "bytes</summary><div class=\"scroll\">{}</div></details>",
        title, html_escaped(memory.device.str()), since_resume(), html_escaped(planned_words()),
        refusal(memory), memory_bars(memory, report_.planned), memory_bytes_table(memory));
    const std::string owners = peak_owners_table(memory);
    if (!owners.empty()) {
      text += "<details><summary>The largest owners at the peak</summary><div class=\"scroll\">" + owners +
              "</div></details>";
    }
    const std::string policies = policies_table(memory.policies);
    if (!policies.empty()) {
      text +=
          "<h2>What each policy saves</h2><p>Bytes by which it lowers the peak of forward and backward, "
          "measured by leaving it out at the end of the run; the EMA by its size.</p><div class=\"scroll\">" +
          policies + "</div>";
    }
    return text;
  }

  static std::string refusal(const MemoryReport& memory) {
    if (!memory.refused) return "";
    const policies::RefusedAllocation& refused = *memory.refused;
    return fmt::format(
        "<p class=\"note\">It did not fit: {} bytes, asked for by {} in phase {}{} with {} bytes "
        "alive, were refused.</p>",
        with_separators(refused.bytes), html_escaped(refused.asked_by), html_escaped(refused.phase),
        refused.module_path.empty() ? "" : " at " + html_escaped(refused.module_path),
        with_separators(refused.live.bytes));
  }

  std::string samples() const {
    if (report_.samples.empty() && report_.samples_note.empty()) return "";
    std::string text = "<h2>Samples</h2>";
    if (!report_.samples_note.empty()) text += "<p>" + html_escaped(report_.samples_note) + "</p>";
    if (report_.samples.empty()) return text;
    text += "<div class=\"latest\">" + grid(report_.samples.back()) + "</div>";
    if (report_.samples.size() == 1) return text;
    text += "<h3>On the way there</h3><div class=\"grids\">";
    for (size_t i = 0; i + 1 < report_.samples.size(); ++i) text += grid(report_.samples[i]);
    return text + "</div>";
  }

  // Scaled up by a whole number where it is small, so that all its pixels are alike.
  static std::string grid(const ReportImage& image) {
    const int64_t scale = std::clamp<int64_t>(max_grid_width / std::max<int64_t>(1, image.width), 1, 8);
    return fmt::format(
        "<figure><img alt=\"samples at {0}\" style=\"--width:{1}px\" src=\"data:image/png;base64,{2}\"/>"
        "<figcaption>{0}</figcaption></figure>\n",
        "step " + with_separators(image.step), scale * image.width, base64(image.png));
  }

  std::string configuration() const {
    std::string text =
        "<h2>Configuration</h2><div class=\"scroll\"><table class=\"config\" data-table=\"config\"><tbody>";
    std::string open_table;
    for (const ConfigRow& row : report_.config) {
      if (row.table != open_table) {
        text += "<tr class=\"table\"><th colspan=\"3\">[" + html_escaped(row.table) + "]</th></tr>\n";
        open_table = row.table;
      }
      text += row.value.empty()
                  ? "<tr><td colspan=\"3\" class=\"unset\"># " + html_escaped(row.note) + "</td></tr>\n"
                  : fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"origin\">{}</td></tr>\n",
                                html_escaped(row.name), html_escaped(row.value), html_escaped(row.note));
    }
    return text + "</tbody></table></div>";
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
