#include "toolkit/data/jpeg_segments.h"

#include "toolkit/io/endian.h"

namespace dtk {
namespace {

enum JpegMarker : uint64_t {
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

constexpr int upright = 1;

int orientation_in(const Tiff& tiff) {
  constexpr uint64_t entry_bytes = 12, orientation_tag = 0x0112, short_type = 3;
  if (!tiff.has(0, 8) || !tiff.is_tiff()) return upright;
  const uint64_t directory = tiff.four(4);
  if (!tiff.has(directory, 2)) return upright;
  const uint64_t entries = tiff.two(directory);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + i * entry_bytes;
    if (!tiff.has(entry, entry_bytes)) return upright;
    if (tiff.two(entry) != orientation_tag) continue;
    const uint64_t value = tiff.two(entry + 8);
    const bool known =
        tiff.two(entry + 2) == short_type && tiff.four(entry + 4) == 1 && value >= 1 && value <= 8;
    return known ? static_cast<int>(value) : upright;
  }
  return upright;
}

}  // namespace

bool is_jpeg(std::string_view encoded) {
  return encoded.starts_with("\xff\xd8");
}

bool walk_jpeg(std::string_view jpeg, const std::function<bool(uint64_t, std::string_view)>& visit) {
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
    if (length > jpeg.size() - at) return false;
    if (!visit(marker, jpeg.substr(at, length))) return true;
    at += length;
  }
  return false;
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
  int orientation = upright;
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
