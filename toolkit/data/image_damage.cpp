#include "toolkit/data/image_damage.h"

#include <zlib.h>

#include <cstdint>
#include <cstdlib>

#include "toolkit/data/jpeg_segments.h"
#include "toolkit/io/endian.h"

namespace dtk {
namespace {

constexpr std::string_view png_signature("\x89PNG\r\n\x1a\n", 8);

std::string png_damage(std::string_view png) {
  constexpr size_t frame = 12;  // length, name, checksum
  for (size_t at = png_signature.size(); png.size() - at >= frame;) {
    const uint64_t length = big_endian(png.substr(at, 4));
    if (length > png.size() - at - frame) break;
    const std::string_view name = png.substr(at + 4, 4);
    const auto* data = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    const uint64_t seen = crc32_z(0, data, static_cast<size_t>(length) + 4);
    if (seen != big_endian(png.substr(at + 8 + length, 4))) return "a checksum differs";
    if (name == "IEND") return "";
    at += frame + length;
  }
  return "it ends too early";
}

std::string bmp_damage(std::string_view bmp) {
  constexpr size_t headers = 54;
  if (bmp.size() < headers) return "it ends too early";
  const auto width = static_cast<int32_t>(little_endian<4>(bmp.data() + 18));
  const auto height = static_cast<int32_t>(little_endian<4>(bmp.data() + 22));
  const uint64_t info_bytes = little_endian<4>(bmp.data() + 14), bits = little_endian<2>(bmp.data() + 28);
  if (info_bytes < 40 || width <= 0) return "";  // the decoder's business
  const uint64_t row_bytes = (static_cast<uint64_t>(width) * bits + 31) / 32 * 4;
  const uint64_t rows = static_cast<uint64_t>(std::abs(static_cast<int64_t>(height)));
  const uint64_t start = little_endian<4>(bmp.data() + 10);
  return start + row_bytes * rows > bmp.size() ? "it ends too early" : "";
}

}  // namespace

std::string image_damage(std::string_view encoded) {
  if (encoded.starts_with(png_signature)) return png_damage(encoded);
  if (encoded.starts_with("BM")) return bmp_damage(encoded);
  if (!is_jpeg(encoded)) return "";
  return walk_jpeg(encoded, [](uint64_t, std::string_view) { return true; }) ? "" : "it ends too early";
}

}  // namespace dtk
