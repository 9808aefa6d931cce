#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "toolkit/data/image.h"

namespace dtk {
namespace {

constexpr double bicubic_a = -0.5;
constexpr double bicubic_support = 2.0;
// The largest sum is 255 at 22 bits, and negative lobes need one bit more: 32 bits hold it.
constexpr int weight_bits = 22;

double bicubic(double x) {
  x = std::abs(x);
  if (x < 1.0) return ((bicubic_a + 2.0) * x - (bicubic_a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * bicubic_a;
  return 0.0;
}

/// What one pixel of a resized row is made of.
struct Window {
  int64_t first = 0;             // of the source
  std::vector<int32_t> weights;  // fixed point, weight_bits
};

std::vector<int32_t> fixed_point(std::vector<double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<int32_t> fixed;
  for (const double weight : weights) {
    const double scaled = weight / sum * (1 << weight_bits);
    fixed.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return fixed;
}

/// Of one side that is resized: pixels first .. first + count - 1 of the result are wanted.
struct Side {
  int64_t source, target, first, count;
};

std::vector<Window> windows(const Side& side) {
  const double scale = static_cast<double>(side.source) / static_cast<double>(side.target);
  const double stretch = std::max(scale, 1.0);  // of the filter, against aliasing
  const double support = bicubic_support * stretch, shrink = 1.0 / stretch;
  std::vector<Window> all;
  for (int64_t i = side.first; i < side.first + side.count; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), side.source);
    std::vector<double> weights;
    for (int64_t x = first; x < end; ++x)
      weights.push_back(bicubic((static_cast<double>(x) - center + 0.5) * shrink));
    all.push_back({first, fixed_point(std::move(weights))});
  }
  return all;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> weight_bits, 0, 255));
}

Image blank(int64_t height, int64_t width, int64_t channels) {
  return {.height = height,
          .width = width,
          .channels = channels,
          .pixels = std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
}

Image resize_rows(const Image& image, const Side& side) {
  Image result = blank(image.height, side.count, image.channels);
  const std::vector<Window> all = windows(side);
  uint8_t* out = result.pixels.data();
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.pixels.data() + y * image.width * image.channels;
    for (const Window& window : all) {
      for (int64_t c = 0; c < image.channels; ++c) {
        int32_t sum = 1 << (weight_bits - 1);
        const uint8_t* pixel = row + window.first * image.channels + c;
        for (const int32_t weight : window.weights) {
          sum += weight * *pixel;
          pixel += image.channels;
        }
        *out++ = rounded(sum);
      }
    }
  }
  return result;
}

Image resize_columns(const Image& image, const Side& side) {
  Image result = blank(side.count, image.width, image.channels);
  const int64_t row_bytes = image.width * image.channels;
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  uint8_t* out = result.pixels.data();
  for (const Window& window : windows(side)) {
    std::fill(sums.begin(), sums.end(), 1 << (weight_bits - 1));
    const uint8_t* row = image.pixels.data() + window.first * row_bytes;
    for (const int32_t weight : window.weights) {  // whole rows: in the order in which the pixels lie
      for (int64_t i = 0; i < row_bytes; ++i) sums[static_cast<size_t>(i)] += weight * row[i];
      row += row_bytes;
    }
    for (const int32_t sum : sums) *out++ = rounded(sum);
  }
  return result;
}

/// Only the wanted part is made: a long and thin image is far larger when it is enlarged.
Image resize_part(const Image& image, const Side& rows, const Side& columns) {
  const auto is_whole = [](const Side& side) {
    return side.source == side.target && side.count == side.target;
  };
  const Image wide = is_whole(columns) ? image : resize_rows(image, columns);
  return is_whole(rows) ? wide : resize_columns(wide, rows);
}

/// The middle of a side that keeps its proportion to the shorter one.
Side middle(int64_t source, int64_t shorter, int64_t size) {
  const int64_t target = (source * size + shorter / 2) / shorter;
  return {.source = source, .target = target, .first = (target - size) / 2, .count = size};
}

}  // namespace

Image resize_bicubic(const Image& image, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || image.height < 1 || image.width < 1) {
    throw std::invalid_argument("resize_bicubic: sizes must be at least 1");
  }
  return resize_part(image, {.source = image.height, .target = height, .first = 0, .count = height},
                     {.source = image.width, .target = width, .first = 0, .count = width});
}

Image resize_and_crop(const Image& image, int64_t size) {
  const int64_t shorter = std::min(image.height, image.width);
  return resize_part(image, middle(image.height, shorter, size), middle(image.width, shorter, size));
}

}  // namespace dtk
