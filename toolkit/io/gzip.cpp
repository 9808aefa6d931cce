#include "toolkit/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "toolkit/core/errors.h"

namespace dtk {
namespace {

constexpr size_t input_bytes = size_t{64} << 10;
constexpr uint8_t gzip_magic_0 = 0x1f;
constexpr uint8_t gzip_magic_1 = 0x8b;
constexpr int gzip_window_bits = 15 + 16;     // largest window; + 16: a gzip header, not a zlib one
constexpr uint64_t largest_expansion = 1032;  // of deflate: 258 bytes for a quarter of a byte

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw DataError(path.string() + ": " + what);
}

uint64_t regular_file_size(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(path, "no such file; check the path");
  if (!std::filesystem::is_regular_file(status))
    fail(path, "not a regular file; give the path of a data file");
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) fail(path, "cannot be read: " + error.message());
  return bytes;
}

}  // namespace

GzipReader::GzipReader(const std::filesystem::path& path)
    : path_(path), file_bytes_(regular_file_size(path)) {
  file_.open(path, std::ios::binary);
  if (!file_) fail(path, std::string("cannot be opened: ") + std::strerror(errno));
  std::array<char, 2> magic{};
  file_.read(magic.data(), magic.size());
  const bool is_gzip = file_.gcount() == 2 && static_cast<uint8_t>(magic[0]) == gzip_magic_0 &&
                       static_cast<uint8_t>(magic[1]) == gzip_magic_1;
  file_.clear();
  file_.seekg(0);
  if (!is_gzip) return;
  input_.resize(input_bytes);
  stream_ = std::make_unique<z_stream_s>();
  if (inflateInit2(stream_.get(), gzip_window_bits) != Z_OK) {
    stream_.reset();
    throw std::bad_alloc();
  }
}

GzipReader::~GzipReader() {
  if (stream_) inflateEnd(stream_.get());
}

uint64_t GzipReader::max_bytes() const {
  if (!compressed()) return file_bytes_;
  return std::min(file_bytes_, std::numeric_limits<uint64_t>::max() / largest_expansion) * largest_expansion;
}

size_t GzipReader::read(uint8_t* out, size_t limit) {
  if (compressed()) return inflate_some(out, limit);
  file_.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(limit));
  if (file_.bad()) fail(path_, "reading failed");
  return static_cast<size_t>(file_.gcount());
}

size_t GzipReader::inflate_some(uint8_t* out, size_t limit) {
  constexpr size_t call_limit = size_t{1} << 30;  // zlib counts in 32 bits
  size_t made = 0;
  while (made < limit && !ended_) {
    if (stream_->avail_in == 0) fill_input();
    if (stream_->avail_in == 0) {
      fail(path_, "the gzip data ends too early (" + std::to_string(file_bytes_) +
                      " bytes in the file); it is truncated, get the file again");
    }
    const size_t room = std::min(limit - made, call_limit);
    stream_->next_out = out + made;
    stream_->avail_out = static_cast<uInt>(room);
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    made += room - stream_->avail_out;
    if (status == Z_STREAM_END) {
      finish_member();
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      const char* reason = stream_->msg != nullptr ? stream_->msg : zError(status);
      fail(path_, std::string("the gzip data is corrupt (") + reason + "); get the file again");
    }
  }
  return made;
}

void GzipReader::fill_input() {
  file_.read(reinterpret_cast<char*>(input_.data()), static_cast<std::streamsize>(input_.size()));
  if (file_.bad()) fail(path_, "reading failed");
  stream_->next_in = input_.data();
  stream_->avail_in = static_cast<uInt>(file_.gcount());
  input_read_ += stream_->avail_in;
}

void GzipReader::finish_member() {
  if (stream_->avail_in == 0) fill_input();
  if (stream_->avail_in == 0) {
    ended_ = true;
    return;
  }
  if (stream_->next_in[0] != gzip_magic_0) {
    const uint64_t end = input_read_ - stream_->avail_in;
    fail(path_, "the gzip data ends at byte " + std::to_string(end) + " of " + std::to_string(file_bytes_) +
                    " and something else follows; get the file again");
  }
  inflateReset(stream_.get());
}

}  // namespace dtk
