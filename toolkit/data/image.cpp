#include "toolkit/data/image.h"

#include <ATen/ATen.h>
#include <dtk/policies/advice.h>

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

using policies::advise;

constexpr int64_t int_max = std::numeric_limits<int>::max();

#ifdef DTK_WEBP
constexpr char kFormats[] = "PNG, JPEG, WebP and BMP";
#else
constexpr char kFormats[] = "PNG, JPEG and BMP";
#endif

[[noreturn]] void fail_decoding(const std::string& name, const std::string& reason) {
  throw CorruptImage(
      fmt::format("{}: cannot be decoded ({}); allowed: {}; replace or remove it", name, reason, kFormats));
}

const ImageDecoder& decoder_of(std::string_view encoded, const std::string& name) {
  if (encoded.empty()) fail_decoding(name, "the file is empty");
  if (encoded.size() > static_cast<size_t>(int_max)) fail_decoding(name, "larger than 2 GiB");
  if (is_jpeg(encoded)) return jpeg_decoder;
  if (is_png(encoded)) return png_decoder;
  if (is_bmp(encoded)) return bmp_decoder;
#ifdef DTK_WEBP
  if (is_webp(encoded)) return webp_decoder;
#endif
  fail_decoding(name, "unknown image type");
}

ImageHeader header_of(std::string_view encoded, const std::string& name) try {
  return decoder_of(encoded, name).header(encoded);
} catch (const Undecodable& error) {
  fail_decoding(name, error.reason);
}

/// Of an image that is allowed, as it is stored.
ImageHeader stored_header(std::string_view encoded, const std::string& name, Convert convert) {
  const ImageHeader header = header_of(encoded, name);
  const auto [channels, height, width] = header.size;
  if (width < 1 || height < 1)
    fail_decoding(name, fmt::format("its header says {} x {} pixels", height, width));
  if (header.is_animated)
    throw CorruptImage(name + ": is an animation; allowed: a single picture; take one of it, or remove it");
  if (header.is_16_bit && convert == Convert::none) {
    throw DataError(
        fmt::format("{}: has 16 bits per channel; allowed: 8 with data.convert = \"none\"; convert it to 8 "
                    "bits per channel, or {} with model.channels = 3",
                    name, advise("data.convert", "\"rgb\"")));
  }
  const bool is_known =
      header.components == 1 || header.components == 3 || (header.components == 4 && convert == Convert::rgb);
  if (is_jpeg(encoded) && !is_known) {
    throw DataError(fmt::format(
        "{}: is a JPEG of {} components{}; allowed: 1 (grey) or 3 (colour){}", name, header.components,
        header.components == 4 ? " (CMYK)" : "",
        header.components == 4
            ? "; convert it to RGB, or " + advise("data.convert", "\"rgb\"") + " with model.channels = 3"
            : ", or 4 (CMYK) with data.convert = \"rgb\"; convert it to RGB"));
  }
  if (height > int_max / width || channels > int_max / (width * height))
    fail_decoding(name, fmt::format("its header says {} x {} pixels, more than 2 GiB", height, width));
  return header;
}

/// `value` of 255 parts of `one`, the rest of `other`, rounded.
uint8_t blended(int one, int other, int value) {
  const int sum = one * value + other * (255 - value) + 128;
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 8);
}

void cmyk_to_rgb(const uint8_t* pixel, uint8_t* rgb) {  // as Pillow: without ink the paper is white
  const int black = pixel[3];
  for (int c = 0; c < 3; ++c) rgb[c] = blended(pixel[c], 0, black);
}

/// Of any number of channels.
Image as_rgb(Image image, bool is_cmyk) {
  if (image.channels == 3) return image;
  constexpr int white = 255;
  Image rgb{.height = image.height, .width = image.width, .channels = 3, .pixels = {}};
  const auto count = static_cast<size_t>(image.height * image.width);
  const auto channels = static_cast<size_t>(image.channels);
  rgb.pixels.resize(3 * count);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const from = image.pixels.data() + channels * i;
    uint8_t* const to = rgb.pixels.data() + 3 * i;
    if (is_cmyk) {
      cmyk_to_rgb(from, to);
      continue;
    }
    const bool is_transparent = channels == 2 || channels == 4;
    for (size_t c = 0; c < 3; ++c) {
      const uint8_t value = from[channels < 3 ? 0 : c];
      to[c] = is_transparent ? blended(value, white, from[channels - 1]) : value;
    }
  }
  return rgb;
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

}  // namespace

ImageSize encoded_image_size(std::string_view encoded, const std::string& name, Convert convert) {
  ImageSize size = stored_header(encoded, name, convert).size;
  if (swaps_sides(jpeg_orientation(encoded))) std::swap(size.height, size.width);
  if (convert == Convert::rgb) size.channels = 3;
  return size;
}

Image decode_image(std::string_view encoded, const std::string& name, Convert convert) {
  const ImageHeader header = stored_header(encoded, name, convert);
  const ImageSize& size = header.size;
  if (const std::string damage = image_damage(encoded); !damage.empty()) fail_decoding(name, damage);
  Image stored{.height = size.height, .width = size.width, .channels = size.channels, .pixels = {}};
  stored.pixels.resize(static_cast<size_t>(size.channels * size.height * size.width));
  try {
    decoder_of(encoded, name).decode(encoded, size, stored.pixels.data());
  } catch (const Undecodable& error) {
    fail_decoding(name, error.reason);
  }
  if (convert == Convert::rgb) stored = as_rgb(std::move(stored), header.is_cmyk);
  return upright(std::move(stored), jpeg_orientation(encoded));
}

}  // namespace dtk
