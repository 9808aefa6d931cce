#include "toolkit/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>

#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"

namespace dtk {
namespace {

uint64_t regular_file_size(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) refuse_data(path, "no such file; check the path");
  if (!std::filesystem::is_regular_file(status))
    refuse_data(path, "not a regular file; give the path of a data file");
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) refuse_data(path, "cannot be read: " + error.message());
  return bytes;
}

}  // namespace

GzipReader::GzipReader(const std::filesystem::path& path)
    : path_(path), file_bytes_(regular_file_size(path)), file_(gzopen(path.c_str(), "rb"), gzclose) {
  if (!file_) refuse_data(path, std::string("cannot be opened: ") + std::strerror(errno));
}

bool GzipReader::compressed() const {
  return gzdirect(file_.get()) == 0;
}

uint64_t GzipReader::max_bytes() const {
  constexpr uint64_t expansion = 1032;  // the largest of deflate: 258 bytes for a quarter of a byte
  if (!compressed()) return file_bytes_;
  return std::min(file_bytes_, std::numeric_limits<uint64_t>::max() / expansion) * expansion;
}

size_t GzipReader::read(void* out, size_t limit) {
  const size_t seen = gzfread(out, 1, limit, file_.get());
  if (seen < limit) check_end();
  return seen;
}

void GzipReader::check_end() const {
  int status = Z_OK;
  gzerror(file_.get(), &status);
  if (status == Z_OK) {  // a cut just where a piece of output is full is no error before zlib reads on
    gzclearerr(file_.get());
    gzgetc(file_.get());
  }
  const std::string text = gzerror(file_.get(), &status);  // "path: reason"
  if (status == Z_OK) return;
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  if (status == Z_BUF_ERROR) {
    refuse_data(path_,
                fmt::format("the gzip data ends too early ({} bytes in the file); it is truncated, get the "
                            "file again",
                            file_bytes_));
  }
  const std::string reason = text.substr(path_.string().size() + 2);
  if (status == Z_ERRNO) refuse_data(path_, "reading failed: " + reason);
  refuse_data(path_, "the gzip data is corrupt (" + reason + "); get the file again");
}

}  // namespace dtk
