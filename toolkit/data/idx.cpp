#include "toolkit/data/idx.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>

#include "toolkit/core/format.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/endian.h"
#include "toolkit/io/gzip.h"

namespace dtk {
namespace {

constexpr uint32_t image_magic = 0x00000803;  // unsigned bytes (0x08), three dimensions
constexpr uint32_t label_magic = 0x00000801;  // unsigned bytes (0x08), one dimension

struct IdxFile {
  std::vector<uint32_t> sizes;  // one per dimension
  std::vector<uint8_t> bytes;
};

std::vector<uint32_t> read_header(GzipReader& reader, const std::filesystem::path& path, uint32_t magic) {
  const size_t dimensions = magic & 0xff;
  std::string header(4 * (1 + dimensions), '\0');
  const size_t seen = reader.read(header.data(), header.size());
  const auto number = [&header](size_t i) {
    return static_cast<uint32_t>(big_endian(header.substr(4 * i, 4)));
  };
  if (seen >= 4 && number(0) != magic) {
    refuse_data(path,
                fmt::format("not an IDX file of {0}: it starts with {1:#010x}, allowed is {2:#010x}; name a "
                            "file of {0}",
                            dimensions == 1 ? "labels" : "images", number(0), magic));
  }
  if (seen < header.size()) {
    refuse_data(
        path, fmt::format("ends after {} bytes, inside the IDX header of {} bytes; get the file again", seen,
                          header.size()));
  }
  std::vector<uint32_t> sizes;
  for (size_t i = 1; i <= dimensions; ++i) sizes.push_back(number(i));
  return sizes;
}

/// Nothing if the product does not fit.
std::optional<uint64_t> product(const std::vector<uint32_t>& sizes) {
  uint64_t result = 1;
  for (const uint32_t size : sizes) {
    if (__builtin_mul_overflow(result, size, &result)) return std::nullopt;
  }
  return result;
}

/// Bytes that the header says follow it. Throws if the file cannot hold them, before any are read.
uint64_t promised_bytes(const GzipReader& reader, const std::filesystem::path& path,
                        const std::vector<uint32_t>& sizes) {
  const std::string says = "its header says " + c10::Join("x", sizes);
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
    const std::string held =
        reader.compressed()
            ? fmt::format("no gzip file of {} bytes unpacks to that many", reader.file_bytes())
            : fmt::format("{} bytes follow it", possible);
    refuse_data(path, fmt::format("{} = {} bytes, but {}; get the file again", says, *promised, held));
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
      refuse_data(
          path, fmt::format("its header says {} bytes follow, but the data ends after {}; get the file again",
                            promised, before + seen));
    }
  }
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) {
    refuse_data(
        path, fmt::format("holds more than the {} bytes that its header says; get the file again", promised));
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
  data.identity = {{data_file(images), data_file(labels)}, numbered_classes(data.labels)};
  data.description = fmt::format("{} images {}, {} classes (IDX, {})", data.labels.size(),
                                 shape_text(data.channels, data.height, data.width), data.classes,
                                 images.filename().string());
  return std::make_unique<PixelSource>(std::move(data));
}

}  // namespace dtk
