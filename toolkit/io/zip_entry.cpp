#include "toolkit/io/zip_entry.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/io/advice.h"

namespace dtk {
namespace {

constexpr uint16_t stored = 0, deflated = 8;
constexpr size_t input_bytes = size_t{64} << 10;
constexpr int raw_window_bits = -15;  // no header and no checksum of zlib's around the data

}  // namespace

ZipEntryReader::ZipEntryReader(const ZipReader& zip, const ZipEntry& entry, std::string name)
    : zip_(zip), entry_(entry), name_(std::move(name)) {
  if (entry.method == stored) return;
  if (entry.method != deflated) {
    fail("is compressed by method " + std::to_string(entry.method) + "; read are 0 (stored) and 8 (deflate)" +
         save_npz_again);
  }
  input_.resize(static_cast<size_t>(std::min<uint64_t>(input_bytes, entry.packed)));
  stream_ = std::make_unique<z_stream_s>();
  if (inflateInit2(stream_.get(), raw_window_bits) != Z_OK) {
    stream_.reset();
    throw std::bad_alloc();
  }
}

ZipEntryReader::~ZipEntryReader() {
  if (stream_) inflateEnd(stream_.get());
}

void ZipEntryReader::fail(const std::string& what) const {
  throw DataError(zip_.path().string() + ": " + name_ + " " + what);
}

void ZipEntryReader::read(void* data, size_t bytes) {
  if (bytes > entry_.bytes - unpacked_) {
    fail("ends after " + std::to_string(entry_.bytes) + " bytes; " + std::to_string(unpacked_ + bytes) +
         " were wanted" + save_npz_again);
  }
  auto* const out = static_cast<unsigned char*>(data);
  if (stream_ == nullptr) {
    zip_.read_packed(entry_, unpacked_, out, bytes);
  } else if (const size_t made = inflate_some(out, bytes); made < bytes) {
    fail("unpacks to " + std::to_string(unpacked_ + made) + " bytes, and the zip directory says " +
         std::to_string(entry_.bytes) + save_npz_again);
  }
  unpacked_ += bytes;
  if (bytes > 0) crc_ = static_cast<uint32_t>(crc32_z(crc_, out, bytes));
}

/// Fewer than `bytes` bytes only at the end of the packed data.
size_t ZipEntryReader::inflate_some(unsigned char* data, size_t bytes) {
  constexpr size_t call_limit = size_t{1} << 30;  // zlib counts in 32 bits
  size_t made = 0;
  while (made < bytes && !ended_) {
    if (stream_->avail_in == 0) fill_input();
    const size_t room = std::min(bytes - made, call_limit);
    stream_->next_out = data + made;
    stream_->avail_out = static_cast<uInt>(room);
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    made += room - stream_->avail_out;
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      const char* const reason = stream_->msg != nullptr ? stream_->msg : zError(status);
      fail(std::string("has corrupt compressed data (") + reason + ")" + save_npz_again);
    }
  }
  return made;
}

void ZipEntryReader::fill_input() {
  const auto bytes = static_cast<size_t>(std::min<uint64_t>(input_.size(), entry_.packed - taken_));
  if (bytes == 0) {
    fail("has compressed data that end too early, after " + std::to_string(entry_.packed) + " bytes" +
         save_npz_again);
  }
  zip_.read_packed(entry_, taken_, input_.data(), bytes);
  taken_ += bytes;
  stream_->next_in = input_.data();
  stream_->avail_in = static_cast<uInt>(bytes);
}

void ZipEntryReader::finish() {
  if (unpacked_ != entry_.bytes) {
    fail("holds " + std::to_string(entry_.bytes) + " bytes; only " + std::to_string(unpacked_) +
         " were wanted" + save_npz_again);
  }
  if (stream_) {
    unsigned char more = 0;
    if (inflate_some(&more, 1) > 0) {
      fail("unpacks to more than the " + std::to_string(entry_.bytes) + " bytes that the zip directory says" +
           save_npz_again);
    }
    if (const uint64_t left = entry_.packed - taken_ + stream_->avail_in; left > 0) {
      fail("has " + std::to_string(left) + " bytes behind the end of its compressed data" + save_npz_again);
    }
  }
  if (crc_ != entry_.crc32) {
    fail("has changed since it was written (its CRC-32 differs)" + std::string(save_npz_again));
  }
}

}  // namespace dtk
