#include <dtk/planner/explain.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/figures.h"

namespace dtk::planner {
namespace {

using policies::Category;
using policies::PhasePeak;

constexpr size_t kColumn = 11;
constexpr int64_t kSmallPart = 1000;  // of the peak: what is less than one of so many parts is left out

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

// Breaks `text` between words where it would reach 80 columns; all lines begin at `column`, the first with
// `start`. "83 %" is one word.
std::string line(std::string start, const std::string& text, size_t column = kColumn) {
  constexpr size_t width = 80;
  start.resize(std::max(column, start.empty() ? 0 : start.size() + 1), ' ');
  std::string lines = std::move(start);
  size_t at = column;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(' ', begin), text.size());
    if (text.compare(end, 2, " %") == 0) end = std::min(text.find(' ', end + 1), text.size());
    if (at > column && at + 1 + end - begin >= width) {
      lines += "\n" + std::string(column, ' ');
      at = column;
    } else if (at > column) {
      lines += ' ';
      ++at;
    }
    lines += text.substr(begin, end - begin);
    at += end - begin;
    begin = end + 1;
  }
  return lines + "\n";
}

std::string listed(const std::vector<std::string>& items, const char* last) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? last : ", ") + items[i];
  return text;
}

std::string state_line(const Observed& plain) {
  int64_t state = 0;
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : state_of(plain)) {
    state += bytes;
    parts.push_back(name + " " + digits(bytes));
  }
  return line("state", bytes_text(state) + " that no segment changes" +
                           (parts.empty() ? "" : ": " + listed(parts, ", "))) +
         line("saved", bytes_text(plain.saved) + " for backward, " +
                           percent_text(plain.saved, plain.saved + state) + " of both together");
}

std::string bound_line(const Observed& plain) {
  const int64_t peak = policies::highest(plain.plan.device).peak.bytes;
  return line("bound", "at most " + bytes_text(plain.max_gain()) + " fewer by any choice of these modules, " +
                           percent_text(plain.max_gain(), peak) + " of the peak: what is saved, less " +
                           digits(plain.entering) + " that come in from outside of all modules and " +
                           digits(plain.outside) + " that are saved there");
}

struct Rows {
  SegmentGain first;
  std::string last;
  size_t count = 1;
};

// Neighbours with equal figures, as the blocks of a model are, are one row; those without gain have reasons.
std::vector<Rows> rows_of(const std::vector<SegmentGain>& segments) {
  std::vector<Rows> rows;
  for (const SegmentGain& one : segments) {
    SegmentGain alike = one;
    if (!rows.empty()) alike.path = rows.back().first.path;
    if (!rows.empty() && alike == rows.back().first && one.gain > 0) {
      rows.back().last = one.path;
      ++rows.back().count;
    } else {
      rows.push_back({one, one.path});
    }
  }
  return rows;
}

std::string name_of(const Rows& row) {
  return row.count == 1 ? row.first.path
                        : row.first.path + " to " + row.last + " (" + std::to_string(row.count) + ")";
}

class SegmentTable {
 public:
  explicit SegmentTable(const std::vector<SegmentGain>& segments) : rows_(rows_of(segments)) {
    for (const SegmentGain& one : segments) {
      for (const int64_t figure : {one.saves, one.inputs, one.gain})
        width_ = std::max(width_, 2 + digits(figure).size());
    }
  }

  std::string text() const {
    std::string text = cells("  module", "saves", "its inputs", "gain");
    for (const Rows& row : rows_) {
      const bool gains = row.first.gain > 0;
      text += cells((gains ? "  " : "! ") + name_of(row), digits(row.first.saves), digits(row.first.inputs),
                    digits(row.first.gain));
      if (!gains) text += line("", row.first.reason, 4);
    }
    return text;
  }

 private:
  // A name that is too long has a line of its own.
  std::string cells(std::string start, const std::string& a, const std::string& b,
                    const std::string& c) const {
    constexpr size_t whole = 79, widest = 15;
    const size_t figures = std::min(width_, widest), names = whole - 3 * figures;
    std::string text;
    if (start.size() > names) {
      text = start + "\n";
      start.clear();
    }
    start.resize(names, ' ');
    return text + start + padded(a, figures) + padded(b, figures) + padded(c, figures) + "\n";
  }

  const std::vector<Rows> rows_;
  size_t width_ = 12;
};

std::string more_or_fewer(int64_t change) {
  return change == 0 ? "the same" : digits(std::abs(change)) + (change > 0 ? " more" : " fewer");
}

std::string held_line(const char* name, const HeldAgain& held, const char* how) {
  if (held.bytes == 0) return "";
  return line(name, "backward holds at most " + bytes_text(held.bytes) + " that it " + how + ", in " +
                        (held.path.empty() ? "no module" : held.path));
}

std::string segments_lines(const Explanation& why) {
  if (!why.recomputed) return "";
  const Observed& with = *why.recomputed;
  std::string text =
      line("segments", why.segments + ": " + bytes_text(with.saved) + " are saved instead of " +
                           digits(why.plain.saved) + ": " + more_or_fewer(with.saved - why.plain.saved));
  return text + held_line("recompute", with.made_again, "recomputed") +
         held_line("fetched", with.fetched, "fetched from host memory");
}

// "in phase backward, in the backward of fc, at aten::mm"
std::string place_words(const Observed& observed, const std::string& phase) {
  const auto found = observed.places.find(phase);
  if (found == observed.places.end() || found->second.operation.empty()) return "in phase " + phase;
  const PeakPlace& place = found->second;
  const std::string where = place.path.empty()
                                ? "outside of all modules"
                                : (place.backward ? "in the backward of " : "in ") + place.path;
  return "in phase " + phase + ", " + where + ", at " + place.operation;
}

std::string largest_words(const PhasePeak& peak) {
  const LargestAlive largest = largest_alive(peak.peak);
  if (largest.bytes == 0) return "; there only what lives from step to step is alive";
  const std::string what = largest.operation.empty() ? "no operator" : largest.operation;
  return "; alive there, the most of one operator: " + what + ", " + bytes_text(largest.bytes) + " (" +
         policies::name_of(largest.category) + ")";
}

std::string peak_lines(const Explanation& why) {
  const PhasePeak peak = policies::highest(why.plain.plan.device);
  const int64_t saved = peak.peak.of(Category::saved) + peak.peak.of(Category::casts);
  std::string text = line("peak", bytes_text(peak.peak.bytes) + " " + place_words(why.plain, peak.name) +
                                      (why.recomputes ? ", without segments" : "") + largest_words(peak));
  if (why.recomputed) {
    const PhasePeak with = policies::highest(why.recomputed->plan.device);
    text += line("", "with the segments " + bytes_text(with.peak.bytes) + " " +
                         place_words(*why.recomputed, with.name) + ": " +
                         more_or_fewer(with.peak.bytes - peak.peak.bytes) + largest_words(with));
  }
  if (saved == 0)
    return text + line("", "nothing that was saved for backward is alive there, so no segments lower it");
  return text + line("", "of it, " + bytes_text(saved) + " were saved for backward");
}

std::string largest_line(const LargestParameter& largest) {
  if (largest.bytes == 0) return "";
  std::string text = largest.name + ", a parameter of " + bytes_text(largest.bytes);
  if (largest.temporaries > 0) {
    text += "; temporaries of that size: " + digits(largest.temporaries) + " at once in phase " +
            largest.phase + ", " + bytes_text(largest.temporaries * largest.bytes) + ", made by " +
            listed(largest.operators, " and ");
  }
  return line("largest", text);
}

std::string temporaries_words(const PhasePeak& peak) {
  std::vector<std::pair<int64_t, std::string>> by_bytes;
  const auto items = peak.peak.items();
  const auto found = items.find(Category::temporaries);
  if (found == items.end()) return "what operators make and free";
  for (const auto& [label, held] : found->second) by_bytes.emplace_back(-held, label);
  std::sort(by_bytes.begin(), by_bytes.end());
  constexpr size_t shown = 2;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(shown, by_bytes.size()); ++i) names.push_back(by_bytes[i].second);
  return "instead of " + listed(names, " and ") + ", what works in place or on smaller pieces";
}

// Modules whose saved bytes are a visible part of the peak and would be fewer in a segment of its own.
std::vector<std::string> more_segments(const Observed& job, const PhasePeak& peak) {
  std::vector<std::string> paths;
  const auto items = peak.peak.items();
  const auto saved = items.find(Category::saved);
  for (const SegmentGain& one : job.segments) {
    const bool there = saved != items.end() && saved->second.count(one.path) > 0;
    if (there && one.gain * kSmallPart >= peak.peak.bytes) paths.push_back(one.path);
  }
  return paths;
}

bool waits_in_host_memory(const Observed& job) {
  return std::any_of(job.plan.host.begin(), job.plan.host.end(),
                     [](const PhasePeak& phase) { return phase.peak.of(Category::offloaded) > 0; });
}

// Nothing that the job does already.
std::string saved_remedy(const Explanation& why, const PhasePeak& peak) {
  std::vector<std::string> ways;
  if (!why.recomputes && why.plain.max_gain() > 0) ways.emplace_back("checkpointing");
  if (why.recomputes) {
    const std::vector<std::string> more = more_segments(why.job(), peak);
    if (!more.empty()) ways.push_back("checkpointing more, such as " + more.front());
  }
  // The CPU's own memory is the host's.
  const Observed& job = why.job();
  if (!job.plan.on_cpu && !waits_in_host_memory(job)) ways.emplace_back("host memory");
  ways.emplace_back("a smaller batch");
  return listed(ways, " or ");
}

std::string remedy(const Explanation& why, const PhasePeak& peak, Category category) {
  const bool on_cpu = why.job().plan.on_cpu;
  switch (category) {
    case Category::parameters:
      return "fewer bits, or a smaller, shared or low-rank " + why.job().largest.name;
    case Category::gradients:
      return "an optimizer step within backward, which frees each gradient at once";
    case Category::optimizer:
      return std::string("moments ") + (on_cpu ? "" : "in host memory, ") +
             "in fewer bits or factored, or an optimizer without";
    case Category::casts:
      return why.recomputes ? "weights that are stored in fewer bits"
                            : "checkpointing, which makes them again segment by segment";
    case Category::saved:
      return saved_remedy(why, peak);
    case Category::data:
      return "a smaller batch";
    case Category::temporaries:
    case Category::scratch:
      return temporaries_words(peak);
    default:
      return on_cpu ? "doing without it" : "host memory for it";
  }
}

std::string bounds_table(const Explanation& why) {
  const Observed& job = why.job();
  const PhasePeak peak = policies::highest(job.plan.device);
  constexpr size_t figures = 16, column = 33;
  std::string text;
  for (const CategoryBound& bound : category_bounds(job.plan.device)) {
    if (bound.bytes * kSmallPart < peak.peak.bytes) continue;
    std::string start = std::string("  ") + policies::name_of(bound.category);
    start.resize(15, ' ');
    text += line(start + padded(digits(bound.bytes), figures), remedy(why, peak, bound.category), column);
  }
  return text;
}

std::string suggestions(const Explanation& why) {
  const PhasePeak peak = policies::highest(why.job().plan.device);
  std::string text = "what could lower the peak of " + bytes_text(peak.peak.bytes) +
                     ", and by how many of them\nat the most, as another phase's peak remains\n" +
                     bounds_table(why);
  if (why.alternatives.empty()) return text;
  text += "planned instead\n";
  for (const Alternative& one : why.alternatives) {
    const std::string words = one.problem.empty()
                                  ? bytes_text(one.peak.peak.bytes) + " in phase " + one.peak.name + ": " +
                                        more_or_fewer(one.peak.peak.bytes - peak.peak.bytes)
                                  : "cannot be: " + one.problem;
    constexpr size_t names = 28;
    text += line("  " + one.name, words, names);
  }
  return text;
}

std::string no_backward(const Observed& plain) {
  const PhasePeak peak = policies::highest(plain.plan.device);
  const std::string what =
      plain.with_gradients
          ? "no backward pass asks for what the forward passes save; run them without grad mode. "
          : "nothing is saved for backward: the forward passes ran without grad mode, or nothing in them "
            "needs a gradient. ";
  return line("no effect", what + "Checkpointing has no effect here") +
         line("peak",
              bytes_text(peak.peak.bytes) + " " + place_words(plain, peak.name) + largest_words(peak));
}

}  // namespace

std::string text_of(const Explanation& why) {
  const Observed& plain = why.plain;
  std::string text = "what checkpointing can save (planned, nothing was computed)\n";
  if (!plain.backward) return text + no_backward(plain);
  text += state_line(plain) + bound_line(plain) + segments_lines(why) + peak_lines(why) +
          largest_line(plain.largest);
  if (!plain.segments.empty()) {
    text +=
        "\neach module as the only segment: the bytes that it saves now, those of its\n"
        "inputs, and how many fewer are saved then; ! marks what gains nothing, (n) n\n"
        "neighbours that are alike\n" +
        SegmentTable(plain.segments).text();
  }
  return text + "\n" + suggestions(why);
}

}  // namespace dtk::planner
