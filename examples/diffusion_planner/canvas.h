// A picture that one draws on, with smooth edges. Places in pixels: x to the right, y down, (0, 0) is the
// upper left corner of the picture.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "diffusion_planner/geometry.h"
#include "toolkit/data/image.h"

namespace scenes {

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
};

class Canvas {
 public:
  Canvas(int width, int height, Color background);

  int width() const { return width_; }
  int height() const { return height_; }
  /// A line with round ends and corners. Where it comes over itself it is not drawn twice.
  void stroke(const std::vector<Point>& points, double wide, Color color, double opacity = 1);
  /// Every other part of that length is left out; begins with one that is not.
  void stroke_dashed(const std::vector<Point>& points, double wide, double dash, Color color);
  /// The inside of a polygon, by the even-odd rule.
  void fill(const std::vector<Point>& polygon, Color color, double opacity = 1);
  void disc(Point center, double radius, Color color);
  /// Capitals, digits and spaces, 14 pixels high; a letter takes 12 pixels. Others are left blank.
  void write(Point upper_left, std::string_view text, Color color);

  dtk::Image image() const;

 private:
  void blend(int first_row, int end_row, Color color, double opacity);

  const int width_, height_;
  std::vector<float> pixels_;    // (height, width, 3), 0 to 255
  std::vector<float> coverage_;  // (height, width), 0 between two calls
};

}  // namespace scenes
