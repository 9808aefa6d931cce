#include <dtk/toolkit/resample.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

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

std::vector<Window> windows(int64_t source, int64_t target) {
  const double scale = static_cast<double>(source) / static_cast<double>(target);
  const double stretch = std::max(scale, 1.0);  // of the filter, against aliasing
  const double support = bicubic_support * stretch, shrink = 1.0 / stretch;
  std::vector<Window> all(static_cast<size_t>(target));
  for (int64_t i = 0; i < target; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), source);
    std::vector<double> weights;
    for (int64_t x = first; x < end; ++x)
      weights.push_back(bicubic((static_cast<double>(x) - center + 0.5) * shrink));
    all[static_cast<size_t>(i)] = {first, fixed_point(std::move(weights))};
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

Image resize_rows(const Image& image, int64_t width) {
  Image result = blank(image.height, width, image.channels);
  const std::vector<Window> all = windows(image.width, width);
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

Image resize_columns(const Image& image, int64_t height) {
  Image result = blank(height, image.width, image.channels);
  const int64_t row_bytes = image.width * image.channels;
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  uint8_t* out = result.pixels.data();
  for (const Window& window : windows(image.height, height)) {
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

int64_t in_proportion(int64_t side, int64_t shorter, int64_t size) {
  return (side * size + shorter / 2) / shorter;
}

}  // namespace

Image resize_bicubic(const Image& image, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || image.height < 1 || image.width < 1) {
    throw std::invalid_argument("resize_bicubic: sizes must be at least 1");
  }
  Image wide = width == image.width ? image : resize_rows(image, width);
  return height == image.height ? wide : resize_columns(wide, height);
}

Image resize_and_crop(Image image, int64_t size) {
  if (image.height == size && image.width == size) return image;
  const int64_t shorter = std::min(image.height, image.width);
  const Image resized = resize_bicubic(image, in_proportion(image.height, shorter, size),
                                       in_proportion(image.width, shorter, size));
  Image result = blank(size, size, image.channels);
  const int64_t top = (resized.height - size) / 2, left = (resized.width - size) / 2;
  for (int64_t y = 0; y < size; ++y) {
    const uint8_t* row = resized.pixels.data() + ((top + y) * resized.width + left) * image.channels;
    std::copy_n(row, size * image.channels, result.pixels.data() + y * size * image.channels);
  }
  return result;
}

}  // namespace dtk
