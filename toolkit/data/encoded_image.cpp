#include "toolkit/data/encoded_image.h"

#include <zlib.h>

#include <cstdint>
#include <cstdlib>

#include "toolkit/io/endian.h"

namespace dtk {
namespace {

enum JpegMarker : uint64_t {
  huffman_tables = 0xc4,
  start_of_image = 0xd8,
  end_of_image = 0xd9,
  first_restart = 0xd0,
  last_restart = 0xd7,
  start_of_scan = 0xda,
  temporary = 0x01,
  application_1 = 0xe1,
};

bool is_frame_header(uint64_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/// The TIFF structure of an Exif block: numbers in the byte order that it names, wherever it says they are.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes)
      : bytes_(bytes), little_(bytes.starts_with(std::string_view("II*\0", 4))) {}

  bool is_tiff() const { return little_ || bytes_.starts_with(std::string_view("MM\0*", 4)); }
  bool has(uint64_t at, uint64_t count) const {
    return count <= bytes_.size() && at <= bytes_.size() - count;
  }
  uint64_t two(uint64_t at) const {
    return little_ ? little_endian<2>(bytes_.data() + at) : big_endian(bytes_.substr(at, 2));
  }
  uint64_t four(uint64_t at) const {
    return little_ ? little_endian<4>(bytes_.data() + at) : big_endian(bytes_.substr(at, 4));
  }

 private:
  const std::string_view bytes_;
  const bool little_;
};

constexpr int kUpright = 1;

int orientation_in(const Tiff& tiff) {
  constexpr uint64_t entry_bytes = 12, orientation_tag = 0x0112, short_type = 3;
  if (!tiff.has(0, 8) || !tiff.is_tiff()) return kUpright;
  const uint64_t directory = tiff.four(4);
  if (!tiff.has(directory, 2)) return kUpright;
  const uint64_t entries = tiff.two(directory);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + i * entry_bytes;
    if (!tiff.has(entry, entry_bytes)) return kUpright;
    if (tiff.two(entry) != orientation_tag) continue;
    const uint64_t value = tiff.two(entry + 8);
    const bool known =
        tiff.two(entry + 2) == short_type && tiff.four(entry + 4) == 1 && value >= 1 && value <= 8;
    return known ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

bool is_jpeg(std::string_view encoded) {
  return encoded.starts_with("\xff\xd8");
}

/// Calls visit(marker, segment) for each marker segment, whose first two bytes are its length; entropy-coded
/// data are passed over, and of a segment that the file ends in there is what there is. False if the file
/// ends before its end marker. Stops, with true, when `visit` returns false.
template <class Visit>
bool walk_jpeg(std::string_view jpeg, const Visit& visit) {
  for (size_t at = 2; (at = jpeg.find('\xff', at)) != std::string_view::npos && at + 1 < jpeg.size();) {
    const uint64_t marker = big_endian(jpeg.substr(at + 1, 1));
    const bool is_filling = marker == 0xff;
    const bool is_alone = marker == 0 || marker == temporary || marker == start_of_image ||
                          (marker >= first_restart && marker <= last_restart);
    if (marker == end_of_image) return true;
    at += is_filling ? 1 : 2;
    if (is_filling || is_alone) continue;
    if (jpeg.size() - at < 2) return false;
    const uint64_t length = big_endian(jpeg.substr(at, 2));
    if (!visit(marker, jpeg.substr(at, length))) return true;
    if (length > jpeg.size() - at) return false;
    at += length;
  }
  return false;
}

/// Of a segment of Huffman tables: the decoder reads the head of a table that the segment's end cuts all the
/// same.
std::string table_damage(std::string_view jpeg, uint64_t marker, std::string_view segment) {
  constexpr uint64_t head = 17, most = 256;  // which table, and how many codes there are of 1 to 16 bits
  if (marker != huffman_tables) return "";
  const std::string_view rest = jpeg.substr(static_cast<size_t>(segment.data() - jpeg.data()));
  const uint64_t length = big_endian(segment.substr(0, 2));
  uint64_t codes = 0;
  for (uint64_t at = 2; at < length; at += head + codes) {
    codes = 0;
    for (uint64_t i = at + 1; i < at + head && i < rest.size(); ++i) codes += static_cast<uint8_t>(rest[i]);
    if (codes > most) return "a table has more than 256 Huffman codes";
  }
  return "";
}

std::string jpeg_damage(std::string_view jpeg) {
  std::string damage;
  const bool whole = walk_jpeg(jpeg, [&](uint64_t marker, std::string_view segment) {
    damage = table_damage(jpeg, marker, segment);
    return damage.empty();
  });
  return whole ? damage : "it ends too early";
}

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
  return is_jpeg(encoded) ? jpeg_damage(encoded) : "";
}

std::string jpeg_header_damage(std::string_view encoded) {
  std::string damage;
  if (!is_jpeg(encoded)) return damage;
  walk_jpeg(encoded, [&](uint64_t marker, std::string_view segment) {
    if (marker == start_of_scan) return false;  // what the decoder reads for a size alone
    damage = table_damage(encoded, marker, segment);
    return damage.empty();
  });
  return damage;
}

int jpeg_components(std::string_view encoded) {
  int components = 0;
  if (!is_jpeg(encoded)) return 0;
  walk_jpeg(encoded, [&](uint64_t marker, std::string_view segment) {
    constexpr size_t components_at = 7;  // after length, precision, height and width
    if (!is_frame_header(marker) || segment.size() <= components_at) return true;
    components = static_cast<int>(big_endian(segment.substr(components_at, 1)));
    return false;
  });
  return components;
}

int jpeg_orientation(std::string_view encoded) {
  constexpr std::string_view exif("Exif\0\0", 6);
  constexpr size_t exif_at = 2;  // after the length
  int orientation = kUpright;
  if (!is_jpeg(encoded)) return orientation;
  walk_jpeg(encoded, [&](uint64_t marker, std::string_view segment) {
    if (marker == start_of_scan) return false;  // it comes before the picture
    if (marker != application_1 || segment.size() < exif_at || !segment.substr(exif_at).starts_with(exif))
      return true;
    orientation = orientation_in(Tiff(segment.substr(exif_at + exif.size())));
    return false;
  });
  return orientation;
}

}  // namespace dtk
