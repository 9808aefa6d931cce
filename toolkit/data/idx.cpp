#include "toolkit/data/idx.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "toolkit/core/format.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/gzip.h"

namespace dtk {
namespace {

constexpr uint32_t image_magic = 0x00000803;  // unsigned bytes (0x08), three dimensions
constexpr uint32_t label_magic = 0x00000801;  // unsigned bytes (0x08), one dimension

struct IdxFile {
  std::vector<uint32_t> sizes;  // one per dimension
  std::vector<uint8_t> bytes;
};

std::string sizes_text(const std::vector<uint32_t>& sizes) {
  std::string text;
  for (const uint32_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

std::vector<uint32_t> read_header(GzipReader& reader, const std::filesystem::path& path, uint32_t magic) {
  const size_t dimensions = magic & 0xff;
  std::vector<uint8_t> header(4 * (1 + dimensions));
  const size_t seen = reader.read(header.data(), header.size());
  if (seen >= 4 && big_endian(header.data()) != magic) {
    const char* const what = dimensions == 1 ? "labels" : "images";
    refuse_data(
        path,
        fmt::format("not an IDX file of {}: it starts with {:#010x}, allowed is {:#010x}; name a file of {}",
                    what, big_endian(header.data()), magic, what));
  }
  if (seen < header.size()) {
    refuse_data(
        path, fmt::format("ends after {} bytes, inside the IDX header of {} bytes; get the file again", seen,
                          header.size()));
  }
  std::vector<uint32_t> sizes;
  for (size_t i = 1; i <= dimensions; ++i) sizes.push_back(big_endian(header.data() + 4 * i));
  return sizes;
}

/// Nothing if the product does not fit.
std::optional<uint64_t> product(const std::vector<uint32_t>& sizes) {
  uint64_t result = 1;
  for (const uint32_t size : sizes) {
    if (size != 0 && result > std::numeric_limits<uint64_t>::max() / size) return std::nullopt;
    result *= size;
  }
  return result;
}

/// Bytes that the header says follow it. Throws if the file cannot hold them, before any are read.
uint64_t promised_bytes(const GzipReader& reader, const std::filesystem::path& path,
                        const std::vector<uint32_t>& sizes) {
  const std::string says = "its header says " + sizes_text(sizes);
  for (const uint32_t size : sizes) {
    if (size == 0) refuse_data(path, says + "; every size must be at least 1; get the file again");
  }
  const std::optional<uint64_t> promised = product(sizes);
  if (!promised)
    refuse_data(path,
                says + ", more bytes than 64 bits can count; the header is damaged; get the file again");
  const uint64_t header_bytes = 4 * (1 + sizes.size());
  const uint64_t possible = reader.max_bytes() - std::min(reader.max_bytes(), header_bytes);
  if (*promised > possible) {
    refuse_data(path, says + " = " + std::to_string(*promised) + " bytes, but " +
                          (reader.compressed() ? "no gzip file of " + std::to_string(reader.file_bytes()) +
                                                     " bytes unpacks to that many"
                                               : std::to_string(possible) + " bytes follow it") +
                          "; get the file again");
  }
  return *promised;
}

/// `promised` may be a lie within what the file's size allows, so memory grows as bytes arrive.
std::vector<uint8_t> read_promised(GzipReader& reader, const std::filesystem::path& path, uint64_t promised) {
  constexpr uint64_t piece = uint64_t{16} << 20;
  std::vector<uint8_t> bytes;
  bytes.reserve(std::min(promised, 4 * piece));
  while (bytes.size() < promised) {
    const size_t before = bytes.size();
    const size_t wanted = std::min(promised - before, piece);
    bytes.resize(before + wanted);
    const size_t seen = reader.read(bytes.data() + before, wanted);
    if (seen < wanted) {
      refuse_data(path, "its header says " + std::to_string(promised) +
                            " bytes follow, but the data ends after " + std::to_string(before + seen) +
                            "; get the file again");
    }
  }
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) {
    refuse_data(path, "holds more than the " + std::to_string(promised) +
                          " bytes that its header says; get the file again");
  }
  return bytes;
}

IdxFile read_idx(const std::filesystem::path& path, uint32_t magic) {
  GzipReader reader(path);
  IdxFile file;
  file.sizes = read_header(reader, path, magic);
  const uint64_t promised = promised_bytes(reader, path, file.sizes);
  file.bytes = read_promised(reader, path, promised);
  return file;
}

}  // namespace

std::unique_ptr<ImageSource> open_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels) {
  const IdxFile label_file = read_labels_file([&] { return read_idx(labels, label_magic); });
  IdxFile image_file = read_idx(images, image_magic);
  if (image_file.sizes[0] != label_file.sizes[0]) {
    throw LabelsError(fmt::format("{}: holds {} labels, but {} holds {} images; give two files of one set",
                                  labels.string(), label_file.sizes[0], images.string(),
                                  image_file.sizes[0]));
  }
  PixelData data;
  data.channels = 1;
  data.height = image_file.sizes[1];
  data.width = image_file.sizes[2];
  data.classes = 1 + *std::max_element(label_file.bytes.begin(), label_file.bytes.end());
  data.pixels = std::move(image_file.bytes);
  data.labels.assign(label_file.bytes.begin(), label_file.bytes.end());
  data.description = fmt::format("{} images {}, {} classes (IDX, {})", data.labels.size(),
                                 shape_text(data.channels, data.height, data.width), data.classes,
                                 images.filename().string());
  return std::make_unique<PixelSource>(std::move(data));
}

}  // namespace dtk
