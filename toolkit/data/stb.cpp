// The project's one instance of stb's code: BMP in, PNG out, and JPEG and PNG in where their libraries are
// not.
#include <zlib.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <tuple>

#include "toolkit/core/format.h"
#include "toolkit/data/encoded_image.h"
#include "toolkit/data/image_decoders.h"

// Static, so that a program may bring its own copy. What it takes is zeroed: it reads tables that a file need
// not have filled.
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_NO_STDIO
#define STBI_ONLY_BMP
#ifndef DTK_IMAGE_LIBRARIES
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#endif
#define STBI_MALLOC(bytes) std::calloc(1, bytes)
#define STBI_REALLOC(block, bytes) std::realloc(block, bytes)
#define STBI_FREE(block) std::free(block)
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

namespace dtk {
namespace {

void append_to_string(void* target, void* data, int bytes) {
  static_cast<std::string*>(target)->append(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

const stbi_uc* bytes_of(std::string_view encoded) {
  return reinterpret_cast<const stbi_uc*>(encoded.data());
}

ImageHeader stb_header(std::string_view encoded) {
  int width = 0, height = 0, channels = 0;
  const auto count = static_cast<int>(encoded.size());
  if (stbi_info_from_memory(bytes_of(encoded), count, &width, &height, &channels) == 0)
    throw Undecodable{stbi_failure_reason()};
  // A BMP may say anything; in one whose rows go down the height is negative.
  return {.size = {.channels = channels, .height = std::abs(int64_t{height}), .width = width},
          .components = channels,
          .is_16_bit = stbi_is_16_bit_from_memory(bytes_of(encoded), count) != 0};
}

void stb_decode(std::string_view encoded, const ImageSize& size, uint8_t* pixels) {
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> decoded(
      stbi_load_from_memory(bytes_of(encoded), static_cast<int>(encoded.size()), &width, &height, &channels,
                            0),
      stbi_image_free);
  if (decoded == nullptr) throw Undecodable{stbi_failure_reason()};
  if (ImageSize{.channels = channels, .height = height, .width = width} != size)
    throw Undecodable{"its header says two sizes"};
  std::copy_n(decoded.get(), size.channels * size.height * size.width, pixels);
}

}  // namespace

const ImageDecoder bmp_decoder = {stb_header, stb_decode};

#ifndef DTK_IMAGE_LIBRARIES

const ImageDecoder jpeg_decoder = {[](std::string_view encoded) {
                                     if (const std::string damage = jpeg_table_damage(encoded);
                                         !damage.empty())
                                       throw Undecodable{damage};
                                     ImageHeader header = stb_header(encoded);
                                     header.components = jpeg_components(encoded);
                                     return header;
                                   },
                                   stb_decode};

const ImageDecoder png_decoder = {stb_header, stb_decode};

#endif

bool fits_png(const ImageSize& size) {
  constexpr int64_t int_max = std::numeric_limits<int>::max();
  const auto [channels, height, width] = size;
  return height >= 1 && width >= 1 && channels >= 1 && channels <= 4 && height <= int_max &&
         width <= int_max / 4 && width * channels + 1 <= int_max / height;
}

std::string encode_png(const Image& image) {
  const auto [height, width, channels, pixels] =
      std::tie(image.height, image.width, image.channels, image.pixels);
  if (!fits_png({channels, height, width}) ||
      pixels.size() != static_cast<size_t>(height * width * channels)) {
    throw std::invalid_argument(
        fmt::format("encode_png: {} bytes cannot be an image of {} x {} pixels with {} channels",
                    pixels.size(), height, width, channels));
  }
  std::string encoded;
  const int written =
      stbi_write_png_to_func(append_to_string, &encoded, static_cast<int>(width), static_cast<int>(height),
                             static_cast<int>(channels), pixels.data(), static_cast<int>(width * channels));
  if (written == 0) throw std::bad_alloc();
  return encoded;
}

}  // namespace dtk
