#include <zlib.h>

#include <algorithm>
#include <cstdlib>

#include "fuzz/target.h"
#include "toolkit/data/image.h"
#include "toolkit/io/endian.h"

namespace dtk::fuzz {
namespace {

constexpr int64_t kMaxPixels = 1 << 18;  // a picture that takes long says nothing new

void read_images(std::string_view input) {
  const ImageSize size = encoded_image_size(input, "input");
  if (size.height > kMaxPixels / size.width) return;
  const Image image = decode_image(input, "input");
  const bool as_said = image.height == size.height && image.width == size.width &&
                       image.channels == size.channels &&
                       static_cast<int64_t>(image.pixels.size()) == size.height * size.width * size.channels;
  if (!as_said || decode_image(input, "input").pixels != image.pixels) std::abort();
}

/// What the header declares is decoded, turned and compared.
int64_t max_bytes_of_images(std::string_view input) {
  constexpr int64_t fixed = 1 << 20, per_value = 16;
  try {
    const ImageSize size = encoded_image_size(input, "input");
    if (size.height > kMaxPixels / size.width) return fixed;
    return fixed + per_value * size.height * size.width * size.channels;
  } catch (const DataError&) {
    return fixed;
  }
}

/// The checksums of a PNG's chunks.
void mend_images(std::string& input) {
  constexpr size_t signature = 8, frame = 12;
  for (size_t at = signature; input.starts_with("\x89PNG") && input.size() >= at + frame;) {
    const uint64_t length = big_endian(std::string_view(input).substr(at, 4));
    if (length > input.size() - at - frame) return;
    const auto* data = reinterpret_cast<const Bytef*>(input.data() + at + 4);
    const auto checksum = static_cast<uint32_t>(crc32_z(0, data, length + 4));
    for (size_t i = 0; i < 4; ++i) input[at + 8 + length + i] = static_cast<char>(checksum >> (24 - 8 * i));
    at += frame + length;
  }
}

}  // namespace

const Target images = {read_images, max_bytes_of_images, mend_images};

}  // namespace dtk::fuzz
