#include "toolkit/report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"

namespace dtk {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double extent = 1000;      // of the drawing, both ways; CSS stretches it
constexpr size_t intervals = 400;    // that a long curve is drawn by
constexpr size_t hover_strips = 80;  // of the plot's width
constexpr int x_ticks = 6, y_ticks = 6;
constexpr double logarithmic_from = 20;  // highest / lowest

// 12.25 -> "12.25", 12.0 -> "12": for coordinates and percentages.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

struct Range {
  double low = 0, high = 0;
};

class Axis {
 public:
  Axis(Range range, std::vector<double> ticks, bool logarithmic)
      : range_(range), ticks_(std::move(ticks)), logarithmic_(logarithmic) {}

  const std::vector<double>& ticks() const { return ticks_; }
  bool logarithmic() const { return logarithmic_; }
  // In [0, 1] from the low end.
  double fraction(double value) const {
    if (logarithmic_) return std::log(value / range_.low) / std::log(range_.high / range_.low);
    return (value - range_.low) / (range_.high - range_.low);
  }

 private:
  Range range_;
  std::vector<double> ticks_;
  bool logarithmic_;
};

// From at or below the range to at or above it. Round numbers that are equally far apart where the range is
// narrow; else the most of these that are no more than nine: the digits, 1, 2 and 5, or 1 times powers of
// ten.
std::vector<double> logarithmic_ticks(Range range) {
  if (range.high <= 2 * range.low) return round_ticks(range.low, range.high, y_ticks);
  for (const std::vector<double>& digits : {std::vector<double>{1, 1.5, 2, 3, 4, 5, 6, 8},
                                            std::vector<double>{1, 2, 5}, std::vector<double>{1}}) {
    std::vector<double> ticks;
    const int first = static_cast<int>(std::floor(std::log10(range.low)));
    const int last = static_cast<int>(std::floor(std::log10(range.high))) + 1;
    for (int power = first; power <= last; ++power) {
      for (const double digit : digits) ticks.push_back(digit * std::pow(10.0, power));
    }
    while (ticks.size() > 2 && ticks[1] <= range.low) ticks.erase(ticks.begin());
    while (ticks.size() > 2 && ticks[ticks.size() - 2] >= range.high) ticks.pop_back();
    if (ticks.size() <= 9 || digits.size() == 1) return ticks;
  }
  return {};
}

Axis y_axis(Range range, YAxis kind) {
  // Ticks between values whose difference is lost in their digits would be one.
  if (range.high - range.low < 1e-9 * std::abs(range.high)) range.low = range.high;
  const double min_ratio = kind == YAxis::logarithmic ? 1 : logarithmic_from;
  if (kind != YAxis::from_zero && range.low > 0 && range.high > min_ratio * range.low) {
    const std::vector<double> ticks = logarithmic_ticks(range);
    return {{ticks.front(), ticks.back()}, ticks, true};
  }
  const bool from_zero = kind == YAxis::from_zero;
  if (from_zero) range.low = std::min(range.low, 0.0);
  if (range.low == range.high) {  // a curve that does not move lies in the middle
    const double margin = range.low == 0 ? 1 : std::abs(range.low) / 2;
    range = {from_zero ? 0 : range.low - margin, range.high + margin};
  }
  const std::vector<double> ticks = round_ticks(range.low, range.high, y_ticks);
  return {{ticks.front(), ticks.back()}, ticks, false};
}

// Not rounded up: the curves fill the width.
Axis x_axis(Range range) {
  if (range.low == range.high) range = {range.low - 1, range.high + 1};
  std::vector<double> ticks = round_ticks(range.low, range.high, x_ticks);
  std::erase_if(
      ticks, [&](double tick) { return tick < range.low || tick > range.high || tick != std::round(tick); });
  return {range, ticks, false};
}

// Keeps the lowest and the highest point of each interval.
Points thinned(const Points& points) {
  if (points.size() <= 2 * intervals) return points;
  Points kept;
  for (size_t i = 0; i < intervals; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / intervals);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / intervals);
    auto [low, high] =
        std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (low > high) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

class Plot {
 public:
  Plot(const Axis& x, const Axis& y) : x_(x), y_(y) {}

  std::string grid() const {
    std::string path;
    for (const double tick : y_.ticks()) path += fmt::format("M0 {}H{}", number(down(tick)), number(extent));
    return "<path class=\"grid\" d=\"" + path + "\"/>";
  }

  std::string marks(const std::vector<double>& places) const {
    std::string path;
    for (const double place : places)
      path += fmt::format("M{} 0V{}", number(std::clamp(across(place), 0.0, extent)), number(extent));
    return path.empty() ? "" : "<path class=\"mark\" d=\"" + path + "\"/>";
  }

  std::string curve(const Curve& curve) const {
    std::string path;
    for (const auto& [x, y] : thinned(curve.points)) {
      const bool begins = path.empty() || curve.look == Curve::Look::dots;
      path += fmt::format("{}{} {}", begins ? "M" : "L", number(across(x)), number(down(y)));
      if (curve.look == Curve::Look::dots) path += "h0";  // a round cap without a line: a dot
    }
    return fmt::format("<path class=\"{}\" data-points=\"{}\" d=\"{}\"/>", policies::text_of(curve.look),
                       curve.points.size(), path);
  }

  // Invisible strips that say what is below the pointer.
  std::string hover(const Curve& curve, const std::string& x_name) const {
    std::string text;
    const size_t strips = std::min(hover_strips, curve.points.size());
    for (size_t i = 0; i < strips; ++i) {
      const auto& [x, y] = curve.points[(2 * i + 1) * curve.points.size() / (2 * strips)];
      const double width = extent / static_cast<double>(strips);
      const double middle = std::clamp(across(x), width / 2, extent - width / 2);
      text += fmt::format(
          "<rect class=\"hover\" x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\"><title>{} {}: "
          "{:.6g}</title></rect>",
          number(middle - width / 2), number(width), number(extent), html_escaped(x_name),
          with_separators(static_cast<int64_t>(x)), y);
    }
    return text;
  }

 private:
  double across(double x) const { return extent * x_.fraction(x); }
  double down(double y) const { return extent * (1 - y_.fraction(y)); }

  const Axis& x_;
  const Axis& y_;
};

std::string labels(const Axis& axis, const char* edge, bool from_top) {
  std::string text;
  const std::vector<std::string> names = tick_labels(axis.ticks());
  for (size_t i = 0; i < names.size(); ++i) {
    const double fraction = axis.fraction(axis.ticks()[i]);
    text += fmt::format("<span style=\"{}:{}%\">{}</span>", edge,
                        number(100 * (from_top ? 1 - fraction : fraction)), names[i]);
  }
  return text;
}

std::string legend(const std::vector<Curve>& curves) {
  if (curves.size() < 2) return "";
  std::string text = "<p class=\"legend\">";
  for (const Curve& curve : curves) {
    text += fmt::format("<span class=\"key {}\">{}</span>", policies::text_of(curve.look),
                        html_escaped(curve.name));
  }
  return text + "</p>";
}

size_t widest(const std::vector<std::string>& texts) {
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  return width;
}

}  // namespace

std::string html_escaped(const std::string& text) {
  static const std::map<char, const char*> entities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string escaped;
  for (const char letter : text) {
    const auto entity = entities.find(letter);
    const bool control = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F;
    if (entity != entities.end()) {
      escaped += entity->second;
    } else if (control && letter != '\n' && letter != '\t') {
      escaped += "\xEF\xBF\xBD";
    } else {
      escaped += letter;
    }
  }
  return escaped;
}

std::vector<double> round_ticks(double low, double high, int most) {
  for (int power = static_cast<int>(std::floor(std::log10((high - low) / most)));; ++power) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      // As a quotient where it is a fraction: 3 / 10 is the double nearest to 0.3, 3 * 0.1 is not.
      const double scale = std::pow(10.0, std::abs(power));
      const auto multiple = [&](double count) {
        return power < 0 ? count * digit / scale : count * digit * scale;
      };
      const double step = multiple(1);
      const double first = std::floor(low / step), last = std::ceil(high / step);
      if (last - first + 1 > most) continue;
      std::vector<double> ticks;
      for (double count = first; count <= last; ++count) ticks.push_back(multiple(count));
      return ticks;
    }
  }
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double largest = 0, finest = INFINITY;
  for (size_t i = 0; i < ticks.size(); ++i) {
    largest = std::max(largest, std::abs(ticks[i]));
    if (ticks[i] != 0) finest = std::min(finest, std::abs(ticks[i]));
    if (i > 0) finest = std::min(finest, ticks[i] - ticks[i - 1]);
  }
  std::vector<std::string> labels;
  const bool small = largest < 1e-2;
  const int power = largest > 0 ? static_cast<int>(std::floor(std::log10(largest) + 1e-9)) : 0;
  const double unit = small ? std::pow(10.0, power) : 1;
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(finest / unit) + 1e-9)));
  for (const double tick : ticks) {
    if (tick == 0) {
      labels.push_back("0");
    } else if (!small && tick == std::round(tick) && std::abs(tick) < 1e15) {
      labels.push_back(decimals > 0 ? fmt::format("{:.{}f}", tick, decimals)
                                    : with_separators(static_cast<int64_t>(tick)));
    } else {
      labels.push_back(fmt::format("{:.{}f}", tick / unit, decimals) +
                       (small ? "e" + std::to_string(power) : ""));
    }
  }
  return labels;
}

std::string line_chart(const LineChart& chart) {
  Range x, y;
  bool any = false;
  std::vector<Curve> curves = chart.curves;
  std::erase_if(curves, [](const Curve& curve) { return curve.points.empty(); });
  for (const Curve& curve : curves) {
    for (const auto& point : curve.points) {
      if (!any) x = {point.first, point.first}, y = {point.second, point.second};
      any = true;
      x = {std::min(x.low, point.first), std::max(x.high, point.first)};
      y = {std::min(y.low, point.second), std::max(y.high, point.second)};
    }
  }
  if (!any) return "";
  const Axis across = x_axis(x), up = y_axis(y, chart.y_axis);
  const Plot plot(across, up);
  std::string drawing = plot.grid() + plot.marks(chart.marks);
  for (const Curve& curve : curves) drawing += plot.curve(curve);
  drawing += plot.hover(curves.front(), chart.x_name);
  const std::string title = html_escaped(chart.title);
  const bool logarithmic = up.logarithmic();
  return fmt::format(
      "<figure class=\"chart\" data-chart=\"{}\"><figcaption><b>{}</b>{}{}</figcaption><div class=\"frame\" "
      "style=\"--w:{}ch\"><div class=\"ys\">{}</div><div class=\"plot\"><svg viewBox=\"0 0 1000 1000\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\" data-scale=\"{}\">{}</svg></div><div "
      "class=\"xs\">{}</div><div class=\"x-name\">{}</div></div>{}</figure>",
      html_escaped(chart.id), title, logarithmic ? " <small>logarithmic</small>" : "", legend(curves),
      widest(tick_labels(up.ticks())), labels(up, "top", true), title, logarithmic ? "logarithmic" : "linear",
      drawing, labels(across, "left", false), html_escaped(chart.x_name),
      chart.note.empty() ? "" : "<p class=\"note\">" + html_escaped(chart.note) + "</p>");
}

}  // namespace dtk
