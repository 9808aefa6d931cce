#include <dtk/planner/explain.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/figures.h"
#include "explain/bounds.h"

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

// "blocks.3.norm saves 2 of them" -> "blocks.#.norm saves # of them"
std::string without_numbers(const std::string& text) {
  std::string same;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) same += c;
    if (digit && !same.ends_with('#')) same += '#';
  }
  return same;
}

// Equal figures, and reasons that differ in the numbers of modules only.
bool are_alike(const SegmentGain& one, const SegmentGain& other) {
  return std::tuple(one.saves, one.inputs, one.gain) == std::tuple(other.saves, other.inputs, other.gain) &&
         without_numbers(one.reason) == without_numbers(other.reason);
}

// Neighbours that are alike, as the blocks of a model are, are one row.
std::vector<Rows> rows_of(const std::vector<SegmentGain>& segments) {
  std::vector<Rows> rows;
  for (const SegmentGain& one : segments) {
    if (!rows.empty() && are_alike(one, rows.back().first)) {
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
      if (!gains) text += line("", (row.count > 1 ? "of the first: " : "") + row.first.reason, 4);
    }
    return text;
  }

 private:
  // A name that is too long has a line of its own.
  std::string cells(std::string start, const std::string& a, const std::string& b,
                    const std::string& c) const {
    constexpr size_t whole = 79, widest = 17;
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

std::string held_line(const char* name, const HeldInBackward& held, const char* how) {
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
  return text + held_line("recompute", with.recomputed_held, "recomputed") +
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

// A way to lower the peak, and by how many bytes at the most.
struct Remedy {
  Category category;
  int64_t bytes = 0;
  std::string text;
};

// Of a category's bytes at the peak.
std::map<std::string, int64_t> labels_of(const PhasePeak& peak, Category category) {
  const auto items = peak.peak.items();
  const auto found = items.find(category);
  return found == items.end() ? std::map<std::string, int64_t>() : found->second;
}

// Modules that save at the peak and would save less in a segment of their own.
std::vector<Remedy> more_segments(const Observed& job, const PhasePeak& peak) {
  std::vector<Remedy> remedies;
  const auto saved = labels_of(peak, Category::saved);
  for (const SegmentGain& one : job.segments) {
    if (saved.count(one.path) == 0) continue;
    remedies.push_back(
        {Category::saved, std::min(one.gain, saved.at(one.path)), "checkpointing " + one.path + " too"});
  }
  return remedies;
}

bool waits_in_host_memory(const Observed& job) {
  return std::any_of(job.plan.host.begin(), job.plan.host.end(),
                     [](const PhasePeak& phase) { return phase.peak.of(Category::offloaded) > 0; });
}

// Nothing that the job does already.
std::vector<Remedy> saved_remedies(const Explanation& why, const PhasePeak& peak, int64_t held) {
  const Observed& job = why.job();
  std::vector<Remedy> remedies;
  if (why.recomputes) remedies = more_segments(job, peak);
  if (!why.recomputes && job.max_gain() > 0)
    remedies.push_back({Category::saved, job.max_gain(), "checkpointing"});
  // The CPU's own memory is the host's.
  if (!job.plan.on_cpu && !waits_in_host_memory(job))
    remedies.push_back({Category::saved, held, "keeping it in host memory"});
  return remedies;
}

// Without limit by what else holds a peak up. `held`: bytes of the category at the peak.
std::vector<Remedy> remedies_of(const Explanation& why, const PhasePeak& peak, Category category,
                                int64_t held) {
  const Observed& job = why.job();
  const bool on_cpu = job.plan.on_cpu;
  switch (category) {
    case Category::parameters:
      return {{category, held / 2, "half the bits, of the weights alone"}};
    case Category::frozen:
      return {{category, held / 2, "half the bits, where they are not packed in few already"}};
    case Category::gradients:
      return {{category, held, "an optimizer step within backward, which frees each gradient at once"}};
    case Category::optimizer:
      return {
          {category, held, std::string(on_cpu ? "" : "moments in host memory, or ") + "an optimizer without"},
          {category, held / 2, "moments in half the bits"}};
    case Category::casts:
      return {{category, held,
               why.recomputes ? "weights that are stored in the bits that are computed with"
                              : "checkpointing, which recomputes them segment by segment"}};
    case Category::saved:
      return saved_remedies(why, peak, held);
    case Category::data:
      return {};  // with the batch
    case Category::temporaries:
    case Category::scratch: {
      std::vector<Remedy> remedies;
      for (const auto& [label, bytes] : labels_of(peak, category))
        remedies.push_back({category, bytes, "what works in place or on smaller pieces instead of " + label});
      return remedies;
    }
    default:
      return {{category, held, on_cpu ? "doing without it" : "host memory for it"}};
  }
}

// What more than one category has part in.
std::vector<Remedy> joint_remedies(const Observed& job) {
  const auto half_the_batch = [](const PhasePeak& phase) {
    int64_t of_samples = 0;
    for (const Category one : {Category::saved, Category::data, Category::temporaries, Category::scratch})
      of_samples += phase.peak.of(one);
    return (of_samples + 1) / 2;
  };
  // What lives from step to step beside a parameter is as large as itself, moments twice, and goes with it.
  const auto without_the_largest = [&](const PhasePeak& phase) {
    int64_t of_it = 0;
    for (int i = 0; i < policies::kCategories; ++i) {
      const auto one = static_cast<Category>(i);
      if (!is_state(one)) continue;
      of_it += std::min(phase.peak.of(one), (one == Category::optimizer ? 2 : 1) * job.largest.bytes);
    }
    return of_it;
  };
  return {{Category::saved, lowered(job.plan.device, half_the_batch), "half the batch, with its temporaries"},
          {Category::parameters, lowered(job.plan.device, without_the_largest),
           "doing without " + job.largest.name + ", its gradient and moments"}};
}

std::string bounds_table(const Explanation& why) {
  const Observed& job = why.job();
  const PhasePeak peak = policies::highest(job.plan.device);
  std::vector<Remedy> remedies = joint_remedies(job);
  std::erase_if(remedies, [&](const Remedy& one) { return one.bytes * kSmallPart < peak.peak.bytes; });
  for (const CategoryBound& bound : category_bounds(job.plan.device)) {
    for (Remedy& one : remedies_of(why, peak, bound.category, peak.peak.of(bound.category))) {
      one.bytes = std::min(one.bytes, bound.bytes);
      if (one.bytes * kSmallPart >= peak.peak.bytes) remedies.push_back(std::move(one));
    }
  }
  std::stable_sort(remedies.begin(), remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return a.bytes > b.bytes; });
  constexpr size_t figures = 16, column = 33, max_shown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(max_shown, remedies.size()); ++i) {
    std::string start = std::string("  ") + policies::name_of(remedies[i].category);
    start.resize(15, ' ');
    text += line(start + padded(digits(remedies[i].bytes), figures), remedies[i].text, column);
  }
  if (remedies.size() > max_shown)
    text += "  and " + std::to_string(remedies.size() - max_shown) + " ways that lower it by less\n";
  return text;
}

std::string suggestions(const Explanation& why) {
  const PhasePeak peak = policies::highest(why.job().plan.device);
  std::string text = "what could lower the peak of " + bytes_text(peak.peak.bytes) +
                     ", and by how many of them at\nthe most, each alone: another phase's peak remains\n" +
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
