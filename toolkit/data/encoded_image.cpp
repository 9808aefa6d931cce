#include "toolkit/data/encoded_image.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "toolkit/io/endian.h"

namespace dtk {
namespace {

enum JpegMarker : uint64_t {
  first_frame = 0xc0,
  second_frame = 0xc1,
  huffman_tables = 0xc4,
  start_of_image = 0xd8,
  end_of_image = 0xd9,
  first_restart = 0xd0,
  last_restart = 0xd7,
  start_of_scan = 0xda,
  quantization_tables = 0xdb,
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

bool jpeg_has_end(std::string_view jpeg) {
  return walk_jpeg(jpeg, [](uint64_t, std::string_view) { return true; });
}

/// The tables that a JPEG has defined so far, by their numbers in it.
class JpegTables {
 public:
  explicit JpegTables(std::string_view jpeg) : jpeg_(jpeg) {}

  /// What is wrong with the next segment, if anything is.
  std::string add(uint64_t marker, std::string_view segment) {
    if (marker == huffman_tables) return add_huffman(segment);
    if (marker == quantization_tables) add_quantization(segment);
    if (is_frame_header(marker)) add_frame(marker, segment);
    return marker == start_of_scan ? missing_for(segment) : "";
  }

 private:
  static constexpr size_t length_bytes = 2;

  static uint64_t byte(std::string_view bytes, size_t at) {
    return at < bytes.size() ? static_cast<uint8_t>(bytes[at]) : 0;
  }

  /// stb reads the head of a table that the segment's end cuts all the same.
  std::string add_huffman(std::string_view segment) {
    constexpr uint64_t head = 17, most = 256;  // which table, and how many codes there are of 1 to 16 bits
    const std::string_view rest = jpeg_.substr(static_cast<size_t>(segment.data() - jpeg_.data()));
    const uint64_t length = big_endian(segment.substr(0, length_bytes));
    uint64_t codes = 0;
    for (uint64_t at = length_bytes; at < length; at += head + codes) {
      codes = 0;
      for (uint64_t i = at + 1; i < at + head; ++i) codes += byte(rest, i);
      if (codes > most) return "a table has more than 256 Huffman codes";
      huffman_.insert(byte(rest, at));
    }
    return "";
  }

  void add_quantization(std::string_view segment) {
    constexpr size_t values = 64;
    for (size_t at = length_bytes; at < segment.size();) {
      const uint64_t which = byte(segment, at);
      quantization_.insert(which & 0xf);
      at += 1 + values * (which >> 4 == 0 ? 1 : 2);
    }
  }

  void add_frame(uint64_t marker, std::string_view segment) {
    constexpr size_t components_at = 8, component_bytes = 3;
    is_sequential_ = marker == first_frame || marker == second_frame;
    for (size_t at = components_at; at + component_bytes <= segment.size(); at += component_bytes)
      quantization_of_[byte(segment, at)] = byte(segment, at + 2);
  }

  std::string missing_for(std::string_view segment) const {
    constexpr size_t components_at = 3, component_bytes = 2;
    const size_t end = components_at + byte(segment, length_bytes) * component_bytes;
    const uint64_t first = byte(segment, end), last = byte(segment, end + 1),
                   refined = byte(segment, end + 2) >> 4;
    const bool wants_dc = is_sequential_ || (first == 0 && refined == 0);
    const bool wants_ac = is_sequential_ || last > 0;
    for (size_t at = components_at; at < end; at += component_bytes) {
      const auto component = quantization_of_.find(byte(segment, at));
      if (component == quantization_of_.end() || quantization_.count(component->second) == 0)
        return "a scan comes before its quantization table";
      const uint64_t tables = byte(segment, at + 1);
      constexpr uint64_t ac = 0x10;
      if ((wants_dc && huffman_.count(tables >> 4) == 0) ||
          (wants_ac && huffman_.count(ac | (tables & 0xf)) == 0))
        return "a scan comes before its Huffman table";
    }
    return "";
  }

  const std::string_view jpeg_;
  std::set<uint64_t> huffman_, quantization_;
  std::map<uint64_t, uint64_t> quantization_of_;  // by component
  bool is_sequential_ = false;
};

constexpr std::string_view png_signature("\x89PNG\r\n\x1a\n", 8);

/// Calls visit(name and data, checksum) for each chunk; false if the file ends before its last one. Stops,
/// with true, when `visit` returns false.
template <class Visit>
bool walk_png(std::string_view png, const Visit& visit) {
  constexpr size_t frame = 12;  // length, name, checksum
  for (size_t at = png_signature.size(); png.size() - at >= frame;) {
    const uint64_t length = big_endian(png.substr(at, 4));
    if (length > png.size() - at - frame) return false;
    const std::string_view content = png.substr(at + 4, 4 + length);
    if (!visit(content, big_endian(png.substr(at + 8 + length, 4)))) return true;
    if (content.starts_with("IEND")) return true;
    at += frame + length;
  }
  return false;
}

const Bytef* zlib_bytes(std::string_view bytes) {
  return reinterpret_cast<const Bytef*>(bytes.data());
}

std::string png_damage(std::string_view png) {
  bool differs = false;
  const bool whole = walk_png(png, [&](std::string_view content, uint64_t checksum) {
    differs = crc32_z(0, zlib_bytes(content), content.size()) != checksum;
    return !differs;
  });
  if (differs) return "a checksum differs";
  return whole ? "" : "it ends too early";
}

/// Bytes that the picture of a header takes before it is compressed: its rows, each with the number of its
/// filter, of each of the seven passes where it is interlaced (PNG specification, 8.2).
uint64_t png_data_bytes(std::string_view header) {
  struct Pass {
    uint64_t left, top, every, every_row;
  };
  constexpr Pass adam7[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                            {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
  constexpr uint64_t samples[] = {1, 0, 3, 1, 2, 0, 4};  // by colour type
  const uint64_t width = big_endian(header.substr(0, 4)), height = big_endian(header.substr(4, 4));
  const uint64_t depth = big_endian(header.substr(8, 1)), colour = big_endian(header.substr(9, 1));
  if (colour >= std::size(samples)) return 0;
  const auto bytes = [&](const Pass& pass) {
    const uint64_t columns = (width - std::min(width, pass.left) + pass.every - 1) / pass.every;
    const uint64_t rows = (height - std::min(height, pass.top) + pass.every_row - 1) / pass.every_row;
    return columns == 0 ? 0 : rows * (1 + (columns * depth * samples[colour] + 7) / 8);
  };
  if (big_endian(header.substr(12, 1)) == 0) return bytes({0, 0, 1, 1});
  return std::accumulate(std::begin(adam7), std::end(adam7), uint64_t{0},
                         [&](uint64_t sum, const Pass& pass) { return sum + bytes(pass); });
}

/// Counts what comes out of an inflater, and keeps nothing.
class InflatedSize {
 public:
  InflatedSize() { inflateInit(&stream_); }
  InflatedSize(const InflatedSize&) = delete;
  InflatedSize& operator=(const InflatedSize&) = delete;
  ~InflatedSize() { inflateEnd(&stream_); }

  /// Up to and a little beyond `most`.
  uint64_t add(std::string_view compressed, uint64_t most) {
    stream_.next_in = const_cast<Bytef*>(zlib_bytes(compressed));
    stream_.avail_in = static_cast<uInt>(compressed.size());
    for (int result = Z_OK; result == Z_OK && bytes_ <= most;) {
      Bytef piece[4096];
      stream_.next_out = piece;
      stream_.avail_out = sizeof piece;
      result = inflate(&stream_, Z_NO_FLUSH);
      bytes_ += sizeof piece - stream_.avail_out;
    }
    return bytes_;
  }

 private:
  z_stream stream_ = {};
  uint64_t bytes_ = 0;
};

std::string bmp_damage(std::string_view bmp) {
  constexpr size_t headers = 54, os2_headers = 26;
  if (bmp.size() < os2_headers) return "it ends too early";
  const bool is_os2 = little_endian<4>(bmp.data() + 14) == 12;
  if (!is_os2 && bmp.size() < headers) return "it ends too early";
  const auto width = is_os2 ? static_cast<int32_t>(little_endian<2>(bmp.data() + 18))
                            : static_cast<int32_t>(little_endian<4>(bmp.data() + 18));
  const auto height = is_os2 ? static_cast<int32_t>(little_endian<2>(bmp.data() + 20))
                             : static_cast<int32_t>(little_endian<4>(bmp.data() + 22));
  const uint64_t bits = little_endian<2>(bmp.data() + (is_os2 ? 24 : 28));
  if (width <= 0) return "";  // the decoder's business
  const uint64_t row_bytes = (static_cast<uint64_t>(width) * bits + 31) / 32 * 4;
  const uint64_t rows = static_cast<uint64_t>(std::abs(static_cast<int64_t>(height)));
  const uint64_t start = little_endian<4>(bmp.data() + 10);
  if (start + row_bytes * rows > bmp.size()) return "it ends too early";
  const uint64_t before_colours = is_os2 ? 38 : 14 + little_endian<4>(bmp.data() + 14);  // as stb counts them
  const uint64_t colours = (start - std::min(start, before_colours)) / (is_os2 ? 3 : 4);
  if (bits > 8 || 8 % std::max<uint64_t>(bits, 1) != 0) return "";
  for (uint64_t y = 0; y < rows; ++y) {
    const std::string_view row = bmp.substr(start + y * row_bytes, row_bytes);
    for (uint64_t x = 0; x < static_cast<uint64_t>(width); ++x) {
      const auto byte = static_cast<uint8_t>(row[x * bits / 8]);
      const uint64_t index = byte >> (8 - bits - x * bits % 8) & ((1U << bits) - 1);
      if (index >= colours) return "a pixel has a colour that its palette has not";
    }
  }
  return "";
}

}  // namespace

bool is_jpeg(std::string_view encoded) {
  return encoded.starts_with("\xff\xd8");
}

bool is_png(std::string_view encoded) {
  return encoded.starts_with(png_signature);
}

bool is_bmp(std::string_view encoded) {
  return encoded.starts_with("BM");
}

bool is_webp(std::string_view encoded) {
  return encoded.starts_with("RIFF") && encoded.substr(0, 12).ends_with("WEBP");
}

std::string image_damage(std::string_view encoded) {
  if (is_png(encoded)) {
    // libpng too sees more data than the picture has, but inflates all of them before it says so.
    const std::string damage = png_damage(encoded);
    return damage.empty() ? png_data_damage(encoded) : damage;
  }
  if (is_bmp(encoded)) return bmp_damage(encoded);
  return is_jpeg(encoded) && !jpeg_has_end(encoded) ? "it ends too early" : "";
}

std::string jpeg_table_damage(std::string_view encoded) {
  std::string damage;
  if (!is_jpeg(encoded)) return damage;
  JpegTables tables(encoded);
  walk_jpeg(encoded, [&](uint64_t marker, std::string_view segment) {
    damage = tables.add(marker, segment);
    return damage.empty();
  });
  return damage;
}

std::string png_data_damage(std::string_view encoded) {
  constexpr size_t header_bytes = 13;
  uint64_t expected = 0, seen = 0;
  InflatedSize inflated;
  if (!is_png(encoded)) return "";
  walk_png(encoded, [&](std::string_view content, uint64_t) {
    const std::string_view data = content.substr(4);
    if (content.starts_with("IHDR") && data.size() >= header_bytes) expected = png_data_bytes(data);
    if (content.starts_with("IDAT")) seen = inflated.add(data, expected);
    return seen <= expected;
  });
  return seen > expected ? "it holds more data than its picture" : "";
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
