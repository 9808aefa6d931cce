#include "diffusion_planner/canvas.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace scenes {
namespace {

// Rows from the top, the leftmost of five pixels is 16.
struct Glyph {
  char letter;
  std::array<uint8_t, 7> rows;
};
constexpr std::array<Glyph, 20> glyphs = {{
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},
    {'2', {14, 17, 1, 6, 8, 16, 31}},    {'A', {14, 17, 17, 31, 17, 17, 17}},
    {'C', {14, 17, 16, 16, 16, 17, 14}}, {'D', {30, 17, 17, 17, 17, 17, 30}},
    {'E', {31, 16, 16, 30, 16, 16, 31}}, {'F', {31, 16, 16, 30, 16, 16, 16}},
    {'G', {14, 17, 16, 23, 17, 17, 14}}, {'H', {17, 17, 17, 31, 17, 17, 17}},
    {'I', {14, 4, 4, 4, 4, 4, 14}},      {'L', {16, 16, 16, 16, 16, 16, 31}},
    {'M', {17, 27, 21, 21, 17, 17, 17}}, {'N', {17, 25, 21, 19, 17, 17, 17}},
    {'O', {14, 17, 17, 17, 17, 17, 14}}, {'P', {30, 17, 17, 30, 16, 16, 16}},
    {'R', {30, 17, 17, 30, 20, 18, 17}}, {'S', {15, 16, 16, 14, 1, 1, 30}},
    {'T', {31, 4, 4, 4, 4, 4, 4}},       {'U', {17, 17, 17, 17, 17, 17, 14}},
}};

// The pixels that an interval of places touches.
struct Span {
  int begin = 0, end = 0;
};
Span span(double low, double high, int size) {
  const double first = std::clamp(std::floor(low), 0.0, static_cast<double>(size));
  const double last = std::clamp(std::ceil(high), 0.0, static_cast<double>(size));
  return {static_cast<int>(first), static_cast<int>(last)};
}

}  // namespace

Canvas::Canvas(int width, int height, Color background)
    : width_(width), height_(height), coverage_(static_cast<size_t>(width) * static_cast<size_t>(height)) {
  pixels_.reserve(3 * coverage_.size());
  for (size_t i = 0; i < coverage_.size(); ++i) {
    for (const uint8_t value : {background.red, background.green, background.blue}) pixels_.push_back(value);
  }
}

/// What is covered gets the colour, and is covered no longer.
void Canvas::blend(int first_row, int end_row, Color color, double opacity) {
  const std::array<float, 3> over = {static_cast<float>(color.red), static_cast<float>(color.green),
                                     static_cast<float>(color.blue)};
  const auto row_pixels = static_cast<size_t>(width_);
  for (size_t i = static_cast<size_t>(first_row) * row_pixels; i < static_cast<size_t>(end_row) * row_pixels;
       ++i) {
    if (coverage_[i] == 0) continue;
    const float part = std::min(coverage_[i], 1.0F) * static_cast<float>(opacity);
    for (size_t c = 0; c < 3; ++c) pixels_[3 * i + c] += part * (over[c] - pixels_[3 * i + c]);
    coverage_[i] = 0;
  }
}

void Canvas::stroke(const std::vector<Point>& points, double wide, Color color, double opacity) {
  const double half = wide / 2;
  int first_row = height_, end_row = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1], b = points[i];
    const Span x = span(std::min(a.x, b.x) - half - 1, std::max(a.x, b.x) + half + 1, width_);
    const Span y = span(std::min(a.y, b.y) - half - 1, std::max(a.y, b.y) + half + 1, height_);
    first_row = std::min(first_row, y.begin), end_row = std::max(end_row, y.end);
    for (int row = y.begin; row < y.end; ++row) {
      for (int column = x.begin; column < x.end; ++column) {
        const double away = distance_to_segment({column + 0.5, row + 0.5}, a, b);
        const auto covered = static_cast<float>(std::clamp(half + 0.5 - away, 0.0, 1.0));
        float& there =
            coverage_[static_cast<size_t>(row) * static_cast<size_t>(width_) + static_cast<size_t>(column)];
        there = std::max(there, covered);
      }
    }
  }
  blend(first_row, end_row, color, opacity);
}

void Canvas::stroke_dashed(const std::vector<Point>& points, double wide, double dash, Color color) {
  const Path path(points);
  for (double begin = 0; begin < path.length(); begin += 2 * dash) {
    stroke(path.sampled(5, begin, std::min(begin + dash, path.length())), wide, color);
  }
}

void Canvas::fill(const std::vector<Point>& polygon, Color color, double opacity) {
  constexpr int lines = 4;  // looked at in each row
  double low = polygon.front().y, high = low;
  for (const Point point : polygon) low = std::min(low, point.y), high = std::max(high, point.y);
  const Span rows = span(low, high, height_);
  std::vector<double> crossed;
  for (int line = rows.begin * lines; line < rows.end * lines; ++line) {
    const double y = (line + 0.5) / lines;
    crossed.clear();
    for (size_t i = 0; i < polygon.size(); ++i) {
      const Point a = polygon[i], b = polygon[(i + 1) % polygon.size()];
      if ((a.y <= y) != (b.y <= y)) crossed.push_back(a.x + (y - a.y) / (b.y - a.y) * (b.x - a.x));
    }
    std::sort(crossed.begin(), crossed.end());
    for (size_t i = 0; i + 1 < crossed.size(); i += 2) {
      const Span x = span(crossed[i], crossed[i + 1], width_);
      for (int column = x.begin; column < x.end; ++column) {
        const double covered = std::min(crossed[i + 1], column + 1.0) - std::max(crossed[i], column + 0.0);
        coverage_[static_cast<size_t>(line / lines) * static_cast<size_t>(width_) +
                  static_cast<size_t>(column)] += static_cast<float>(std::max(covered, 0.0) / lines);
      }
    }
  }
  blend(rows.begin, rows.end, color, opacity);
}

void Canvas::disc(Point center, double radius, Color color) {
  stroke({center, center}, 2 * radius, color);
}

void Canvas::write(Point upper_left, std::string_view text, Color color) {
  constexpr double dot = 2;
  for (const char letter : text) {
    const auto glyph =
        std::find_if(glyphs.begin(), glyphs.end(), [&](const Glyph& one) { return one.letter == letter; });
    for (int row = 0; glyph != glyphs.end() && row < 7; ++row) {
      for (int column = 0; column < 5; ++column) {
        if ((glyph->rows[static_cast<size_t>(row)] >> (4 - column) & 1) == 0) continue;
        const Point at = upper_left + Point{column * dot, row * dot};
        fill({at, at + Point{dot, 0}, at + Point{dot, dot}, at + Point{0, dot}}, color);
      }
    }
    upper_left.x += 6 * dot;
  }
}

dtk::Image Canvas::image() const {
  dtk::Image image{.height = height_, .width = width_, .channels = 3, .pixels = {}};
  image.pixels.reserve(pixels_.size());
  for (const float value : pixels_) {
    image.pixels.push_back(static_cast<uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F))));
  }
  return image;
}

}  // namespace scenes
