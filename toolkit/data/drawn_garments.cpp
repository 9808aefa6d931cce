#include "toolkit/data/drawn_garments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"

namespace dtk {
namespace {

constexpr int64_t garment_side = 28;  // pixels
constexpr int64_t garment_kinds = 10;

struct GarmentPoint {
  double x, y;  // the image is the square from (-1, -1), top left, to (1, 1)
};

/// A filled polygon; shapes later in a list cover earlier ones.
struct GarmentShape {
  std::vector<GarmentPoint> corners;
  double grey;  // 0 black, 1 white
};

class GarmentRandom {
 public:
  explicit GarmentRandom(int64_t index) : key_(draw64(1, static_cast<uint64_t>(index))) {}

  double between(double low, double high) {
    const double unit = static_cast<double>(draw64(key_, drawn_++) >> 11) * 0x1p-53;
    return low + (high - low) * unit;
  }
  bool one_in(double times) { return between(0, times) < 1; }

 private:
  uint64_t key_;
  uint64_t drawn_ = 0;
};

using GarmentShapes = std::vector<GarmentShape>;

/// Adds the polygon and its mirror image left of the middle.
void add_both_sides(GarmentShapes& shapes, const std::vector<GarmentPoint>& corners, double grey) {
  std::vector<GarmentPoint> mirrored = corners;
  for (GarmentPoint& corner : mirrored) corner.x = -corner.x;
  shapes.push_back({corners, grey});
  shapes.push_back({mirrored, grey});
}

void add_box(GarmentShapes& shapes, double left, double top, double right, double bottom, double grey) {
  shapes.push_back({{{left, top}, {right, top}, {right, bottom}, {left, bottom}}, grey});
}

void add_stripes(GarmentShapes& shapes, GarmentRandom& random, double half_width, double top, double bottom,
                 double grey) {
  const double step = random.between(0.18, 0.32);
  for (double y = top + step / 2; y + step / 2 < bottom; y += step) {
    add_box(shapes, -half_width, y, half_width, y + step / 2, grey);
  }
}

struct Sleeve {
  double length;  // 0 at the shoulder, 1 at the hem
  double width;
};

/// A body with two sleeves and a dark neck: the common part of four classes.
GarmentShapes top_garment(GarmentRandom& random, double half_width, double hem, Sleeve sleeve, double grey) {
  GarmentShapes shapes;
  const double spread = random.between(0.24, 0.36);
  const double reach = -0.7 + sleeve.length * (hem + 0.7);
  const double outer = half_width + spread;
  add_both_sides(shapes,
                 {{half_width - 0.12, -0.8},
                  {half_width + 0.08, -0.7},
                  {outer, reach},
                  {outer - sleeve.width, reach + 0.06},
                  {half_width - 0.05, -0.25}},
                 grey * 0.85);
  shapes.push_back({{{-half_width, -0.75},
                     {-0.2, -0.85},
                     {0.2, -0.85},
                     {half_width, -0.75},
                     {half_width, hem},
                     {-half_width, hem}},
                    grey});
  const double neck = random.between(0.1, 0.2);
  shapes.push_back({{{-neck, -0.88}, {neck, -0.88}, {0, -0.88 + neck}}, 0});
  return shapes;
}

GarmentShapes tshirt(GarmentRandom& random) {
  const double grey = random.between(0.5, 1);
  const double half_width = random.between(0.4, 0.5);
  GarmentShapes shapes = top_garment(random, half_width, random.between(0.7, 0.85), {0.32, 0.3}, grey);
  if (random.one_in(3)) add_box(shapes, -0.22, -0.3, 0.22, random.between(-0.05, 0.15), grey * 0.5);
  return shapes;
}

GarmentShapes trouser(GarmentRandom& random) {
  const double grey = random.between(0.45, 1);
  const double hip = random.between(0.27, 0.36);
  const double ankle = random.between(0.1, 0.2);
  const double gap = random.between(0.05, 0.12);
  GarmentShapes shapes;
  add_both_sides(shapes, {{0, -0.85}, {hip, -0.85}, {gap + 2 * ankle, 0.9}, {gap, 0.9}, {0.02, -0.25}}, grey);
  add_box(shapes, -hip, -0.9, hip, -0.8, grey * 0.7);
  return shapes;
}

GarmentShapes pullover(GarmentRandom& random) {
  const double grey = random.between(0.4, 0.95);
  const double half_width = random.between(0.38, 0.48);
  GarmentShapes shapes = top_garment(random, half_width, random.between(0.6, 0.75), {1, 0.24}, grey);
  if (random.one_in(2)) add_stripes(shapes, random, half_width, -0.55, 0.55, grey * 0.6);
  return shapes;
}

GarmentShapes dress(GarmentRandom& random) {
  const double grey = random.between(0.5, 1);
  const double waist = random.between(0.14, 0.2);
  const double hem = random.between(0.35, 0.55);
  GarmentShapes shapes;
  add_both_sides(shapes, {{0, -0.7}, {0.2, -0.92}, {0.26, -0.6}, {waist, -0.2}, {hem, 0.9}, {0, 0.9}}, grey);
  add_box(shapes, -waist - 0.02, -0.26, waist + 0.02, -0.16, grey * 0.55);
  return shapes;
}

GarmentShapes coat(GarmentRandom& random) {
  const double grey = random.between(0.3, 0.8);
  const double half_width = random.between(0.4, 0.48);
  GarmentShapes shapes = top_garment(random, half_width, random.between(0.85, 0.93), {0.88, 0.24}, grey);
  add_box(shapes, -0.035, -0.75, 0.035, 0.92, 0.05);
  add_both_sides(shapes, {{0.04, -0.88}, {0.28, -0.85}, {0.04, -0.3}}, std::min(1.0, grey + 0.25));
  return shapes;
}

GarmentShapes sandal(GarmentRandom& random) {
  const double grey = random.between(0.5, 1);
  const double heel = random.between(0.05, 0.35);
  GarmentShapes shapes;
  shapes.push_back({{{-0.9, 0.4}, {0.9, 0.4 - heel}, {0.9, 0.5 - heel}, {-0.9, 0.5}}, grey});
  add_box(shapes, 0.72, 0.4 - heel, 0.88, 0.5, grey);
  const double top = random.between(-0.3, -0.1);
  for (const double x : {-0.6, -0.1, 0.4}) {
    shapes.push_back({{{x, 0.4}, {x + 0.3, top}, {x + 0.42, top}, {x + 0.12, 0.4}}, grey * 0.8});
  }
  return shapes;
}

GarmentShapes shirt(GarmentRandom& random) {
  const double grey = random.between(0.5, 1);
  const double half_width = random.between(0.36, 0.44);
  GarmentShapes shapes = top_garment(random, half_width, random.between(0.75, 0.88), {0.75, 0.2}, grey);
  add_both_sides(shapes, {{0.02, -0.8}, {0.24, -0.9}, {0.2, -0.62}}, grey * 0.6);
  for (double y = -0.55; y < 0.7; y += 0.25) add_box(shapes, -0.04, y, 0.04, y + 0.09, grey * 0.25);
  return shapes;
}

GarmentShapes sneaker(GarmentRandom& random) {
  const double grey = random.between(0.4, 0.95);
  const double ankle = random.between(-0.25, -0.1);
  GarmentShapes shapes;
  shapes.push_back(
      {{{-0.9, 0.4}, {-0.85, 0.15}, {-0.2, 0.0}, {0.25, ankle}, {0.85, ankle + 0.02}, {0.9, 0.4}}, grey});
  add_box(shapes, -0.93, 0.4, 0.93, random.between(0.48, 0.56), std::min(1.0, grey * 0.4 + 0.6));
  for (const double x : {-0.15, 0.02, 0.19}) {
    shapes.push_back({{{x, 0.12}, {x + 0.06, 0.12}, {x + 0.16, -0.04}, {x + 0.1, -0.04}}, grey * 0.3});
  }
  return shapes;
}

GarmentShapes bag(GarmentRandom& random) {
  const double grey = random.between(0.4, 1);
  const double half_width = random.between(0.6, 0.85);
  const double top = random.between(-0.3, -0.1);
  const double handle = random.between(0.3, 0.5);
  GarmentShapes shapes;
  shapes.push_back(
      {{{-handle, top}, {-handle + 0.1, -0.8}, {handle - 0.1, -0.8}, {handle, top}}, grey * 0.8});
  shapes.push_back(
      {{{-handle + 0.12, top}, {-handle + 0.2, -0.66}, {handle - 0.2, -0.66}, {handle - 0.12, top}}, 0});
  shapes.push_back(
      {{{-half_width + 0.1, top}, {half_width - 0.1, top}, {half_width, 0.75}, {-half_width, 0.75}}, grey});
  add_box(shapes, -0.1, top, 0.1, top + random.between(0.2, 0.4), grey * 0.5);
  return shapes;
}

GarmentShapes boot(GarmentRandom& random) {
  const double grey = random.between(0.4, 0.95);
  const double shaft = random.between(-0.9, -0.6);
  const double heel = random.between(0.02, 0.2);
  GarmentShapes shapes;
  shapes.push_back(
      {{{-0.85, 0.62}, {-0.8, 0.4}, {0.0, 0.15}, {0.08, shaft}, {0.65, shaft}, {0.75, 0.62}}, grey});
  add_box(shapes, -0.88, 0.6, 0.78, 0.7, grey * 0.5);
  add_box(shapes, 0.4, 0.68, 0.78, 0.7 + heel, grey * 0.5);
  return shapes;
}

GarmentShapes shapes_of(int64_t garment, GarmentRandom& random) {
  using Drawer = GarmentShapes (*)(GarmentRandom&);
  constexpr std::array<Drawer, garment_kinds> drawers = {tshirt, trouser, pullover, dress, coat,
                                                         sandal, shirt,   sneaker,  bag,   boot};
  return drawers.at(static_cast<size_t>(garment))(random);
}

/// Size, position, slant and tilt of the whole garment.
void jitter(GarmentShapes& shapes, GarmentRandom& random) {
  const double width = random.between(0.86, 1.02);
  const double height = random.between(0.88, 1.02);
  const double slant = random.between(-0.06, 0.06);
  const double tilt = random.between(-0.04, 0.04);
  const GarmentPoint shift{random.between(-0.05, 0.05), random.between(-0.05, 0.05)};
  for (GarmentShape& shape : shapes) {
    for (GarmentPoint& corner : shape.corners) {
      corner = {width * corner.x + slant * corner.y + shift.x, height * corner.y + tilt * corner.x + shift.y};
    }
  }
}

/// Even-odd rule.
bool contains(const GarmentShape& shape, GarmentPoint point) {
  bool inside = false;
  GarmentPoint a = shape.corners.back();
  for (const GarmentPoint b : shape.corners) {
    const bool crosses = (a.y > point.y) != (b.y > point.y);
    if (crosses && point.x < (b.x - a.x) * (point.y - a.y) / (b.y - a.y) + a.x) inside = !inside;
    a = b;
  }
  return inside;
}

double grey_at(const GarmentShapes& shapes, GarmentPoint point) {
  for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
    if (contains(*shape, point)) return shape->grey;
  }
  return 0;
}

/// Mean over a grid of points, for smooth edges.
double pixel_grey(const GarmentShapes& shapes, int64_t x, int64_t y) {
  constexpr int points = 4;
  double sum = 0;
  for (int i = 0; i < points * points; ++i) {
    const double px = static_cast<double>(x) + (i % points + 0.5) / points;
    const double py = static_cast<double>(y) + (i / points + 0.5) / points;
    sum += grey_at(shapes, {2 * px / garment_side - 1, 2 * py / garment_side - 1});
  }
  return sum / (points * points);
}

}  // namespace

PixelData draw_garments(const std::string& instead_of) {
  constexpr int64_t count = 4000;
  PixelData data;
  data.channels = 1;
  data.height = data.width = garment_side;
  data.classes = garment_kinds;
  data.description = fmt::format("{} drawn images {}, {} classes (SYNTHETIC: there is no {})", count,
                                 shape_text(1, garment_side, garment_side), garment_kinds, instead_of);
  data.remarks.synthetic = true;
  for (int64_t index = 0; index < count; ++index) {
    const int64_t garment = index % garment_kinds;
    GarmentRandom random(index);
    GarmentShapes shapes = shapes_of(garment, random);
    jitter(shapes, random);
    for (int64_t y = 0; y < garment_side; ++y) {
      for (int64_t x = 0; x < garment_side; ++x) {
        data.pixels.push_back(static_cast<uint8_t>(std::lround(255 * pixel_grey(shapes, x, y))));
      }
    }
    data.labels.push_back(garment);
  }
  return data;
}

}  // namespace dtk
