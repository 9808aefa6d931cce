#include "toolkit/data/image.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/data/encoded_image.h"
#include "toolkit/data/image_decoders.h"

namespace dtk {
namespace {

constexpr int64_t int_max = std::numeric_limits<int>::max();

[[noreturn]] void fail_decoding(const std::string& name, const std::string& reason) {
  throw CorruptImage(name + ": cannot be decoded (" + reason +
                     "); allowed: PNG, JPEG and BMP; replace or remove it");
}

const ImageDecoder& decoder_of(std::string_view encoded, const std::string& name) {
  if (encoded.empty()) fail_decoding(name, "the file is empty");
  if (encoded.size() > static_cast<size_t>(int_max)) fail_decoding(name, "larger than 2 GiB");
  if (is_jpeg(encoded)) return jpeg_decoder;
  if (is_png(encoded)) return png_decoder;
  if (is_bmp(encoded)) return bmp_decoder;
  fail_decoding(name, "unknown image type");
}

ImageHeader header_of(std::string_view encoded, const std::string& name) try {
  return decoder_of(encoded, name).header(encoded);
} catch (const Undecodable& error) {
  fail_decoding(name, error.reason);
}

/// Of an image that is allowed, as it is stored.
ImageSize stored_size(std::string_view encoded, const std::string& name) {
  const ImageHeader header = header_of(encoded, name);
  const auto [channels, height, width] = header.size;
  if (width < 1 || height < 1)
    fail_decoding(name, fmt::format("its header says {} x {} pixels", height, width));
  if (header.is_16_bit)
    throw DataError(name + ": has 16 bits per channel; allowed: 8; convert it to 8 bits per channel");
  if (is_jpeg(encoded) && header.components != 1 && header.components != 3) {
    throw DataError(
        fmt::format("{}: is a JPEG of {} components{}; allowed: 1 (grey) or 3 (colour); convert it to RGB",
                    name, header.components, header.components == 4 ? " (CMYK)" : ""));
  }
  if (height > int_max / width || channels > int_max / (width * height))
    fail_decoding(name, fmt::format("its header says {} x {} pixels, more than 2 GiB", height, width));
  return header.size;
}

/// Whether rows of the file are columns of the picture.
bool swaps_sides(int orientation) {
  return orientation >= 5;
}

/// The picture as it is to be seen. Orientations by where the file's first row and first column are seen:
/// 1 top, left; 2 top, right; 3 bottom, right; 4 bottom, left; 5 left, top; 6 right, top; 7 right, bottom;
/// 8 left, bottom.
Image upright(Image stored, int orientation) {
  if (orientation == 1) return stored;
  const bool swaps = swaps_sides(orientation);
  const bool from_last_row = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_last_column = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Image seen{.height = swaps ? stored.width : stored.height,
             .width = swaps ? stored.height : stored.width,
             .channels = stored.channels,
             .pixels = {}};
  seen.pixels.reserve(stored.pixels.size());
  for (int64_t y = 0; y < seen.height; ++y) {
    for (int64_t x = 0; x < seen.width; ++x) {
      const int64_t row = swaps ? x : y, column = swaps ? y : x;
      const int64_t from_row = from_last_row ? stored.height - 1 - row : row;
      const int64_t from_column = from_last_column ? stored.width - 1 - column : column;
      const auto pixel = stored.pixels.begin() + (from_row * stored.width + from_column) * stored.channels;
      seen.pixels.insert(seen.pixels.end(), pixel, pixel + stored.channels);
    }
  }
  return seen;
}

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

  int64_t start(int64_t cell, int64_t side) const { return padding + cell * (side * scale + padding); }
  int64_t extent(int64_t cells, int64_t side) const { return start(cells, side); }
};

/// Copies one sample (C, H, W) into its cell.
void paste(Image& grid, const float* values, int64_t height, int64_t width, int64_t sample,
           const GridLayout& layout) {
  const int64_t top = layout.start(sample / layout.columns, height);
  const int64_t left = layout.start(sample % layout.columns, width);
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

ImageSize encoded_image_size(std::string_view encoded, const std::string& name) {
  const ImageSize stored = stored_size(encoded, name);
  if (!swaps_sides(jpeg_orientation(encoded))) return stored;
  return {.channels = stored.channels, .height = stored.width, .width = stored.height};
}

Image decode_image(std::string_view encoded, const std::string& name) {
  const ImageSize size = stored_size(encoded, name);
  if (const std::string damage = image_damage(encoded); !damage.empty()) fail_decoding(name, damage);
  Image stored{.height = size.height, .width = size.width, .channels = size.channels, .pixels = {}};
  stored.pixels.resize(static_cast<size_t>(size.channels * size.height * size.width));
  try {
    decoder_of(encoded, name).decode(encoded, size, stored.pixels.data());
  } catch (const Undecodable& error) {
    fail_decoding(name, error.reason);
  }
  return upright(std::move(stored), jpeg_orientation(encoded));
}

UnpaintedImage image_grid(const at::Tensor& samples, int64_t columns, int64_t padding, int64_t scale) {
  check_grid(samples, columns, padding, scale);
  const at::Tensor values = samples.detach().to(at::kCPU, at::kFloat).contiguous();
  const int64_t count = values.size(0);
  const int64_t height = values.size(2);
  const int64_t width = values.size(3);
  const GridLayout layout{.columns = columns, .padding = padding, .scale = scale};
  const ImageSize size{.channels = values.size(1),
                       .height = layout.extent((count + columns - 1) / columns, height),
                       .width = layout.extent(columns, width)};
  return {size, [=] {
            Image grid{.height = size.height, .width = size.width, .channels = size.channels, .pixels = {}};
            grid.pixels.assign(static_cast<size_t>(grid.height * grid.width * grid.channels), 255);
            const float* sample = values.const_data_ptr<float>();
            for (int64_t i = 0; i < count; ++i, sample += grid.channels * height * width) {
              paste(grid, sample, height, width, i, layout);
            }
            return grid;
          }};
}

}  // namespace dtk
