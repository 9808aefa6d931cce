#include "zip_writer.h"

#include <zlib.h>

#include "zip_layout.h"

namespace dtk {
namespace {

constexpr size_t alignment = 64;
constexpr size_t extra_head_bytes = 4;         // identifier and length
constexpr uint16_t padding_extra_id = 0x4246;  // the one torch.save pads with
constexpr uint16_t zip64_version = 45;
constexpr uint16_t first_date = 1 << 5 | 1;  // 1980-01-01

/// The fields that a local header and a directory entry share, from the version on. Sizes are elsewhere.
std::string shared_fields(uint32_t crc32, size_t name_bytes, size_t extra_bytes) {
  std::string text;
  append_little_endian(text, zip64_version, 2);
  append_little_endian(text, 0, 2);  // flags
  append_little_endian(text, 0, 2);  // stored
  append_little_endian(text, 0, 2);  // time
  append_little_endian(text, first_date, 2);
  append_little_endian(text, crc32, 4);
  append_little_endian(text, zip_elsewhere_32, 4);
  append_little_endian(text, zip_elsewhere_32, 4);
  append_little_endian(text, name_bytes, 2);
  append_little_endian(text, extra_bytes, 2);
  return text;
}

std::string extra_head(uint16_t id, size_t bytes) {
  std::string text;
  append_little_endian(text, id, 2);
  append_little_endian(text, bytes, 2);
  return text;
}

}  // namespace

void ZipWriter::write(const std::string& text) {
  out_.write(text.data(), text.size());
  written_ += text.size();
}

void ZipWriter::add(const std::string& name, const void* data, size_t bytes) {
  const auto crc =
      static_cast<uint32_t>(bytes == 0 ? 0 : crc32_z(0, static_cast<const unsigned char*>(data), bytes));
  entries_.push_back({name, written_, bytes, crc});
  constexpr size_t sizes_bytes = 16;
  const size_t before = zip_local_bytes + name.size() + 2 * extra_head_bytes + sizes_bytes;
  const size_t padding = (alignment - (written_ + before) % alignment) % alignment;
  std::string header;
  append_little_endian(header, zip_local_signature, 4);
  header += shared_fields(crc, name.size(), 2 * extra_head_bytes + sizes_bytes + padding) + name;
  header += extra_head(zip64_extra_id, sizes_bytes);
  append_little_endian(header, bytes, 8);
  append_little_endian(header, bytes, 8);
  header += extra_head(padding_extra_id, padding) + std::string(padding, 'Z');
  write(header);
  if (bytes > 0) out_.write(data, bytes);
  written_ += bytes;
}

std::string ZipWriter::directory() const {
  constexpr size_t values_bytes = 24;
  std::string text;
  for (const Entry& entry : entries_) {
    append_little_endian(text, zip_central_signature, 4);
    append_little_endian(text, zip64_version, 2);  // made by
    text += shared_fields(entry.crc32, entry.name.size(), extra_head_bytes + values_bytes);
    append_little_endian(text, 0, 2);  // comment
    append_little_endian(text, 0, 2);  // disk
    append_little_endian(text, 0, 2);  // internal attributes
    append_little_endian(text, 0, 4);  // external attributes
    append_little_endian(text, zip_elsewhere_32, 4);
    text += entry.name + extra_head(zip64_extra_id, values_bytes);
    append_little_endian(text, entry.bytes, 8);
    append_little_endian(text, entry.bytes, 8);
    append_little_endian(text, entry.header_at, 8);
  }
  return text;
}

void ZipWriter::finish() {
  const uint64_t begin = written_;
  write(directory());
  const uint64_t end = written_;
  std::string text;
  append_little_endian(text, zip64_end_signature, 4);
  append_little_endian(text, zip64_end_bytes - 12, 8);  // of this record, behind this field
  append_little_endian(text, zip64_version, 2);
  append_little_endian(text, zip64_version, 2);
  append_little_endian(text, 0, 4);  // disk
  append_little_endian(text, 0, 4);  // disk of the directory
  append_little_endian(text, entries_.size(), 8);
  append_little_endian(text, entries_.size(), 8);
  append_little_endian(text, end - begin, 8);
  append_little_endian(text, begin, 8);

  append_little_endian(text, zip64_locator_signature, 4);
  append_little_endian(text, 0, 4);
  append_little_endian(text, end, 8);
  append_little_endian(text, 1, 4);  // disks

  append_little_endian(text, zip_end_signature, 4);
  append_little_endian(text, 0, 4);  // disks
  append_little_endian(text, zip_elsewhere_16, 2);
  append_little_endian(text, zip_elsewhere_16, 2);
  append_little_endian(text, zip_elsewhere_32, 4);
  append_little_endian(text, zip_elsewhere_32, 4);
  append_little_endian(text, 0, 2);  // comment
  write(text);
}

}  // namespace dtk
