#include "image_damage.h"

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <functional>

#include "little_endian.h"

namespace dtk {
namespace {

constexpr std::string_view png_signature("\x89PNG\r\n\x1a\n", 8);

uint64_t byte(std::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

uint64_t big_endian(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | byte(bytes, at + i);
  return value;
}

std::string png_damage(std::string_view png) {
  constexpr size_t frame = 12;  // length, name, checksum
  for (size_t at = png_signature.size(); png.size() - at >= frame;) {
    const uint64_t length = big_endian(png, at, 4);
    if (length > png.size() - at - frame) break;
    const std::string_view name = png.substr(at + 4, 4);
    const auto* data = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    const uint64_t seen = crc32_z(0, data, static_cast<size_t>(length) + 4);
    if (seen != big_endian(png, at + 8 + length, 4)) return "a checksum differs";
    if (name == "IEND") return "";
    at += frame + length;
  }
  return "it ends too early";
}

enum JpegMarker : uint64_t {
  start_of_image = 0xd8,
  end_of_image = 0xd9,
  first_restart = 0xd0,
  last_restart = 0xd7,
  start_of_scan = 0xda,
  temporary = 0x01,
};

bool is_frame_header(uint64_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/// Calls visit(marker, segment) for each marker segment; entropy-coded data are passed over. False if the
/// file ends before its end marker. Stops, with true, when `visit` returns false.
bool walk_jpeg(std::string_view jpeg, const std::function<bool(uint64_t, std::string_view)>& visit) {
  for (size_t at = 2; (at = jpeg.find('\xff', at)) != std::string_view::npos && at + 1 < jpeg.size();) {
    const uint64_t marker = byte(jpeg, at + 1);
    const bool is_filling = marker == 0xff;
    const bool is_alone = marker == 0 || marker == temporary || marker == start_of_image ||
                          (marker >= first_restart && marker <= last_restart);
    if (marker == end_of_image) return true;
    at += is_filling ? 1 : 2;
    if (is_filling || is_alone) continue;
    if (jpeg.size() - at < 2) return false;
    const uint64_t length = big_endian(jpeg, at, 2);
    if (length > jpeg.size() - at) return false;
    if (!visit(marker, jpeg.substr(at, length))) return true;
    at += length;
  }
  return false;
}

bool is_jpeg(std::string_view encoded) {
  return encoded.starts_with("\xff\xd8");
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

int jpeg_components(std::string_view encoded) {
  int components = 0;
  if (!is_jpeg(encoded)) return 0;
  walk_jpeg(encoded, [&](uint64_t marker, std::string_view segment) {
    constexpr size_t components_at = 7;  // after length, precision, height and width
    if (!is_frame_header(marker) || segment.size() <= components_at) return true;
    components = static_cast<int>(byte(segment, components_at));
    return false;
  });
  return components;
}

}  // namespace dtk
