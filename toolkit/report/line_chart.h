// Line charts as HTML: curves in an SVG that stretches with the page, labels beside it that do not.
#pragma once
#include <dtk/policies/enum_text.h>

#include <string>
#include <utility>
#include <vector>

namespace dtk {

/// `text` with what HTML and XML give a meaning to replaced, and control characters as U+FFFD: safe between
/// tags and within a quoted attribute.
std::string html_escaped(const std::string& text);

/// Round numbers (1, 2 or 5 times a power of ten apart) from at or below `low` to at or above `high`: the
/// finest of which there are at most `most` (>= 2). low < high, finite.
std::vector<double> round_ticks(double low, double high, int most);
/// The text of each: no more digits than tell them apart, "20,000", "0.25", "2e-4".
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

struct Curve {
  enum class Look { thin, bold, dots };
  std::string name;                                 // of the legend
  std::vector<std::pair<double, double>> points{};  // x ascends
  Look look = Look::bold;
};

constexpr auto enum_texts(Curve::Look) {
  return std::array{"thin", "bold", "dots"};
}

enum class YAxis {
  fitting,      // logarithmic where all values are above 0 and the highest is more than 20 times the lowest
  from_zero,    // linear, begins at 0
  logarithmic,  // where all values are above 0; else linear
};

struct LineChart {
  std::string id;     // attribute data-chart, for whoever reads the page by program
  std::string title;  // with its unit
  std::string note{};
  std::string x_name = "step";
  YAxis y_axis = YAxis::fitting;
  std::vector<double> marks{};  // places of x with a vertical line
  std::vector<Curve> curves{};  // the first is what hovering shows
};

/// A <figure>, or "" if no curve has a point. Long curves are drawn by the lowest and the highest point of
/// each of some hundred intervals, so no peak is lost.
std::string line_chart(const LineChart& chart);

}  // namespace dtk
