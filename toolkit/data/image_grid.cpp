#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "toolkit/core/errors.h"
#include "toolkit/data/image.h"
#include "toolkit/data/row_labels.h"

namespace dtk {
namespace {

uint8_t to_byte(float value, int64_t sample) {
  if (!std::isfinite(value)) {
    throw DataError(
        "image grid: sample " + std::to_string(sample) +
        " holds a value that is not finite (NaN or infinite), so it is no image; sample from other "
        "weights");
  }
  return static_cast<uint8_t>(std::lround((std::clamp(value, -1.0F, 1.0F) + 1.0F) * 127.5F));
}

void check_grid(const at::Tensor& samples, int64_t columns, int64_t padding, int64_t scale) {
  if (samples.dim() != 4 || samples.numel() == 0) {
    throw std::invalid_argument("image grid: expected samples (N, C, H, W) with at least one value");
  }
  if (!are_images(samples.size(1))) {
    throw DataError("image grid: samples have " + std::to_string(samples.size(1)) +
                    " channels; allowed: 1 (grey) or 3 (RGB); decode latents to images first");
  }
  if (columns < 1 || padding < 0 || scale < 1) {
    throw std::invalid_argument("image grid: columns and scale must be at least 1 and padding at least 0");
  }
}

/// Where and how large the cells of a grid are, in pixels of the grid.
struct GridLayout {
  int64_t columns, padding, scale;
  int64_t names = 0;  // pixels at the left

  int64_t start(int64_t cell, int64_t side) const { return padding + cell * (side * scale + padding); }
  int64_t extent(int64_t cells, int64_t side) const { return start(cells, side); }
};

/// Copies one sample (C, H, W) into its cell.
void paste(Image& grid, const float* values, int64_t height, int64_t width, int64_t sample,
           const GridLayout& layout) {
  const int64_t top = layout.start(sample / layout.columns, height);
  const int64_t left = layout.names + layout.start(sample % layout.columns, width);
  for (int64_t y = 0; y < height * layout.scale; ++y) {
    for (int64_t x = 0; x < width * layout.scale; ++x) {
      const int64_t source = y / layout.scale * width + x / layout.scale;
      uint8_t* pixel = grid.pixels.data() + ((top + y) * grid.width + left + x) * grid.channels;
      for (int64_t c = 0; c < grid.channels; ++c) {
        pixel[c] = to_byte(values[c * height * width + source], sample);
      }
    }
  }
}

}  // namespace

UnpaintedImage image_grid(const at::Tensor& samples, int64_t columns, int64_t padding, int64_t scale,
                          const std::vector<std::string>& row_names) {
  check_grid(samples, columns, padding, scale);
  const at::Tensor values = samples.detach().to(at::kCPU, at::kFloat).contiguous();
  const int64_t count = values.size(0);
  const int64_t height = values.size(2);
  const int64_t width = values.size(3);
  const int64_t rows = (count + columns - 1) / columns;
  constexpr int64_t large = 24;  // pixels of a row that takes letters of twice the size
  const RowLabels labels(row_names, height * scale >= large ? 2 : 1);
  const GridLayout layout{.columns = columns,
                          .padding = padding,
                          .scale = scale,
                          .names = row_names.empty() ? 0 : labels.width() + 2 * padding};
  const ImageSize size{.channels = values.size(1),
                       .height = layout.extent(rows, height),
                       .width = layout.names + layout.extent(columns, width)};
  return {size, [=] {
            Image grid{.height = size.height, .width = size.width, .channels = size.channels, .pixels = {}};
            grid.pixels.assign(static_cast<size_t>(grid.height * grid.width * grid.channels), 255);
            const float* sample = values.const_data_ptr<float>();
            for (int64_t i = 0; i < count; ++i, sample += grid.channels * height * width) {
              paste(grid, sample, height, width, i, layout);
            }
            for (size_t row = 0; row < std::min(row_names.size(), static_cast<size_t>(rows)); ++row) {
              labels.paint(grid, row, layout.start(static_cast<int64_t>(row), height), height * scale,
                           padding);
            }
            return grid;
          }};
}

}  // namespace dtk
