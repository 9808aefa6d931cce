#include "toolkit/io/zip_writer.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/io/zip_layout.h"

namespace dtk {
namespace {

constexpr size_t alignment = 64;
constexpr size_t extra_head_bytes = 4;  // identifier and length
constexpr size_t sizes_bytes = 16;
constexpr uint16_t padding_extra_id = 0x4246;  // the one torch.save pads with
constexpr uint16_t zip64_version = 45;

/// A number and how many bytes it takes, least significant byte first.
struct Field {
  uint64_t value;
  size_t bytes;
};

std::string text_of(std::initializer_list<Field> fields) {
  std::string text;
  for (const auto& [value, bytes] : fields) append_little_endian(text, value, bytes);
  return text;
}

/// The fields that a local header and a directory entry share, from the version on. Sizes are elsewhere.
std::string shared_fields(uint16_t method, uint32_t crc32, size_t name_bytes, size_t extra_bytes) {
  constexpr Field flags = {0, 2}, time = {0, 2}, date = {1 << 5 | 1, 2};  // 1980-01-01
  return text_of({{zip64_version, 2},
                  flags,
                  {method, 2},
                  time,
                  date,
                  {crc32, 4},
                  {zip_elsewhere_32, 4},
                  {zip_elsewhere_32, 4},
                  {name_bytes, 2},
                  {extra_bytes, 2}});
}

std::string extra_head(uint16_t id, size_t bytes) {
  return text_of({{id, 2}, {bytes, 2}});
}

/// Raw: without a header and a checksum of zlib's around it.
std::string deflate_raw(const void* data, size_t bytes) {
  constexpr int memory_level = 8;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, raw_window_bits, memory_level,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  const auto end = [](z_stream* done) { deflateEnd(done); };
  const std::unique_ptr<z_stream, decltype(end)> owner(&stream, end);
  std::string packed(deflateBound(&stream, bytes), '\0');
  if (std::max(bytes, packed.size()) > std::numeric_limits<uInt>::max()) {
    throw std::invalid_argument(
        fmt::format("ZipWriter: {} bytes in one deflated entry; allowed: 4 GB", bytes));
  }
  stream.next_in = static_cast<Bytef*>(const_cast<void*>(data));
  stream.avail_in = static_cast<uInt>(bytes);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
    throw std::logic_error("ZipWriter: deflateBound() was too small");
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace

void ZipWriter::write(const std::string& text) {
  out_.write(text.data(), text.size());
  written_ += text.size();
}

void ZipWriter::add(const std::string& name, const void* data, size_t bytes) {
  const size_t before = zip_local_bytes + name.size() + 2 * extra_head_bytes + sizes_bytes;
  const size_t padding = (alignment - (written_ + before) % alignment) % alignment;
  write_entry({name, written_, bytes, bytes, zip_crc(0, data, bytes), zip_stored}, padding, data);
}

void ZipWriter::add_deflated(const std::string& name, const void* data, size_t bytes) {
  const std::string packed = deflate_raw(data, bytes);
  write_entry({name, written_, bytes, packed.size(), zip_crc(0, data, bytes), zip_deflated}, 0,
              packed.data());
}

void ZipWriter::write_entry(const Entry& entry, size_t padding, const void* packed) {
  entries_.push_back(entry);
  const size_t extra_bytes = 2 * extra_head_bytes + sizes_bytes + padding;
  write(text_of({{zip_local_signature, 4}}) +
        shared_fields(entry.method, entry.crc32, entry.name.size(), extra_bytes) + entry.name +
        extra_head(zip64_extra_id, sizes_bytes) + text_of({{entry.bytes, 8}, {entry.packed, 8}}) +
        extra_head(padding_extra_id, padding) + std::string(padding, 'Z'));
  if (entry.packed > 0) out_.write(packed, entry.packed);
  written_ += entry.packed;
}

std::string ZipWriter::directory() const {
  constexpr size_t values_bytes = 24;
  constexpr Field comment = {0, 2}, disk = {0, 2}, internal_attributes = {0, 2}, external_attributes = {0, 4};
  std::string text;
  for (const Entry& entry : entries_) {
    text += text_of({{zip_central_signature, 4}, {zip64_version, 2}}) +
            shared_fields(entry.method, entry.crc32, entry.name.size(), extra_head_bytes + values_bytes) +
            text_of({comment, disk, internal_attributes, external_attributes, {zip_elsewhere_32, 4}}) +
            entry.name + extra_head(zip64_extra_id, values_bytes) +
            text_of({{entry.bytes, 8}, {entry.packed, 8}, {entry.header_at, 8}});
  }
  return text;
}

void ZipWriter::finish() {
  const uint64_t begin = written_;
  write(directory());
  const uint64_t end = written_, entries = entries_.size();
  constexpr uint64_t record_bytes = zip64_end_bytes - 12;  // behind this field
  constexpr Field disk = {0, 4}, disk_of_directory = {0, 4}, both_disks = {0, 4}, disks = {1, 4},
                  comment = {0, 2};
  write(text_of({{zip64_end_signature, 4},
                 {record_bytes, 8},
                 {zip64_version, 2},
                 {zip64_version, 2},
                 disk,
                 disk_of_directory,
                 {entries, 8},
                 {entries, 8},
                 {end - begin, 8},
                 {begin, 8}}) +
        text_of({{zip64_locator_signature, 4}, disk, {end, 8}, disks}) +
        text_of({{zip_end_signature, 4},
                 both_disks,
                 {zip_elsewhere_16, 2},
                 {zip_elsewhere_16, 2},
                 {zip_elsewhere_32, 4},
                 {zip_elsewhere_32, 4},
                 comment}));
}

}  // namespace dtk
