// Bytes of a file that is either gzip or plain, unpacked piece by piece by zlib's reader of files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

struct gzFile_s;

namespace dtk {

/// Reads front to back. A file that starts with the two gzip magic bytes is unpacked (several members in a
/// row count as one; anything else behind them is ignored, as gzip does), any other is passed through. The
/// caller states how many bytes it wants, and no more than zlib's buffer of 16 KiB is unpacked beyond that: a
/// file that would unpack to far more than it should costs no memory.
/// All errors are DataError and name the file. Not for use by two threads at once.
class GzipReader {
 public:
  explicit GzipReader(const std::filesystem::path& path);

  /// Writes up to `limit` bytes to `out` and returns how many; fewer than `limit` only at the end of the
  /// data, which for gzip includes that its checksum was right.
  size_t read(void* out, size_t limit);

  bool compressed() const;
  uint64_t file_bytes() const { return file_bytes_; }
  /// An upper bound of what can be read in total, known before reading.
  uint64_t max_bytes() const;

 private:
  void check_end() const;

  std::filesystem::path path_;
  uint64_t file_bytes_ = 0;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
};

}  // namespace dtk
