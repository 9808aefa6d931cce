#include "toolkit/io/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>

#include "toolkit/io/zip_layout.h"

namespace dtk {
namespace {

constexpr size_t alignment = 64;
constexpr uint16_t stored = 0, deflated = 8;
constexpr size_t extra_head_bytes = 4;  // identifier and length
constexpr size_t sizes_bytes = 16;
constexpr uint16_t padding_extra_id = 0x4246;  // the one torch.save pads with
constexpr uint16_t zip64_version = 45;
constexpr uint16_t first_date = 1 << 5 | 1;  // 1980-01-01

/// The fields that a local header and a directory entry share, from the version on. Sizes are elsewhere.
std::string shared_fields(uint16_t method, uint32_t crc32, size_t name_bytes, size_t extra_bytes) {
  std::string text;
  append_little_endian(text, zip64_version, 2);
  append_little_endian(text, 0, 2);  // flags
  append_little_endian(text, method, 2);
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

uint32_t crc_of(const void* data, size_t bytes) {
  return static_cast<uint32_t>(bytes == 0 ? 0 : crc32_z(0, static_cast<const unsigned char*>(data), bytes));
}

/// Raw: without a header and a checksum of zlib's around it.
std::string deflate_raw(const void* data, size_t bytes) {
  constexpr int raw_window_bits = -15, memory_level = 8;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, raw_window_bits, memory_level,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  const auto end = [](z_stream* done) { deflateEnd(done); };
  const std::unique_ptr<z_stream, decltype(end)> owner(&stream, end);
  std::string packed(deflateBound(&stream, bytes), '\0');
  if (std::max(bytes, packed.size()) > std::numeric_limits<uInt>::max()) {
    throw std::invalid_argument("ZipWriter: " + std::to_string(bytes) +
                                " bytes in one deflated entry; allowed: 4 GB");
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
  write_entry({name, written_, bytes, bytes, crc_of(data, bytes), stored}, padding, data);
}

void ZipWriter::add_deflated(const std::string& name, const void* data, size_t bytes) {
  const std::string packed = deflate_raw(data, bytes);
  write_entry({name, written_, bytes, packed.size(), crc_of(data, bytes), deflated}, 0, packed.data());
}

void ZipWriter::write_entry(const Entry& entry, size_t padding, const void* packed) {
  entries_.push_back(entry);
  std::string header;
  append_little_endian(header, zip_local_signature, 4);
  header += shared_fields(entry.method, entry.crc32, entry.name.size(),
                          2 * extra_head_bytes + sizes_bytes + padding) +
            entry.name;
  header += extra_head(zip64_extra_id, sizes_bytes);
  append_little_endian(header, entry.bytes, 8);
  append_little_endian(header, entry.packed, 8);
  header += extra_head(padding_extra_id, padding) + std::string(padding, 'Z');
  write(header);
  if (entry.packed > 0) out_.write(packed, entry.packed);
  written_ += entry.packed;
}

std::string ZipWriter::directory() const {
  constexpr size_t values_bytes = 24;
  std::string text;
  for (const Entry& entry : entries_) {
    append_little_endian(text, zip_central_signature, 4);
    append_little_endian(text, zip64_version, 2);  // made by
    text += shared_fields(entry.method, entry.crc32, entry.name.size(), extra_head_bytes + values_bytes);
    append_little_endian(text, 0, 2);  // comment
    append_little_endian(text, 0, 2);  // disk
    append_little_endian(text, 0, 2);  // internal attributes
    append_little_endian(text, 0, 4);  // external attributes
    append_little_endian(text, zip_elsewhere_32, 4);
    text += entry.name + extra_head(zip64_extra_id, values_bytes);
    append_little_endian(text, entry.bytes, 8);
    append_little_endian(text, entry.packed, 8);
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
