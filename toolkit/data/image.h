// Byte images: PNG out, PNG, JPEG, WebP and BMP in, at another size, and grids of samples.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/data/convert.h"

namespace dtk {

struct ImageSize {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// A file that is no image, a damaged one or one that no conversion makes a picture of; a whole image with
/// other channels than are allowed is another DataError.
struct CorruptImage : DataError {
  using DataError::DataError;
};

struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;         // 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA
  std::vector<uint8_t> pixels;  // (height, width, channels)
};

/// An image that is laid out and whose pixels are made when asked for.
struct UnpaintedImage {
  ImageSize size;
  std::function<Image()> paint;
};

/// Whether encode_png() takes an image of this size.
bool fits_png(const ImageSize& size);

/// The PNG file's bytes. Throws std::invalid_argument if sizes and pixels disagree.
std::string encode_png(const Image& image);

/// What the headers of an encoded image say, at their cost only; sides are those of decode_image(). `name`
/// stands in messages. Throws CorruptImage if `encoded` is none of the formats or an animation, and, where
/// nothing is converted, DataError for 16 bits per channel or a CMYK JPEG.
ImageSize encoded_image_size(std::string_view encoded, const std::string& name,
                             Convert convert = Convert::none);

/// Decodes with the channels the file has, or to RGB: grey is repeated, CMYK and transparency become what
/// Pillow makes of them (Image.convert("RGB"), Image.paste() on white), 16 bits their upper 8, rounded. A
/// JPEG is turned as its Exif block says, one without a readable one is as it is stored. Memory is what the
/// image's header says, so check encoded_image_size() first where files are not trusted. Throws as
/// encoded_image_size(), CorruptImage also for a file that ends too early, holds more data than its picture
/// or other damage that its decoder sees, for a wrong checksum of a PNG, and for more than 2 GiB of pixels.
Image decode_image(std::string_view encoded, const std::string& name, Convert convert = Convert::none);

/// `image` at another size: separable bicubic (a = -0.5) whose support grows with the reduction, so that it
/// is antialiased. Equal to Pillow's Image.resize(BICUBIC) to the bit: horizontal pass first, weights rounded
/// to 22 fractional bits, each pass rounded to bytes. Throws std::invalid_argument for sizes below 1.
Image resize_bicubic(const Image& image, int64_t height, int64_t width);

/// The middle `size` x `size` pixels after the shorter side is resized to `size` and the longer one in
/// proportion, rounded; an image of exactly that size is left as it is.
Image resize_and_crop(const Image& image, int64_t size);

/// Whether samples of so many channels are images; others are latents.
constexpr bool are_images(int64_t channels) {
  return channels == 1 || channels == 3;
}

/// Lays out `samples` (N, C, H, W), floats in [-1, 1] on any device, row by row in `columns` columns with
/// `padding` white pixels around each; missing samples of the last row stay white. Each sample is enlarged
/// `scale` times by repeating pixels. -1 .. 1 becomes 0 .. 255, rounded; values beyond take the nearest end.
/// The samples are copied to the CPU at once. `row_names`: written to the left of the rows, from the first
/// on; empty: no room is left for them. Throws DataError if C is neither 1 nor 3, std::invalid_argument
/// otherwise; paint() DataError if a value is not finite.
UnpaintedImage image_grid(const at::Tensor& samples, int64_t columns, int64_t padding, int64_t scale,
                          const std::vector<std::string>& row_names = {});

}  // namespace dtk
