// Bytes of a file that is either gzip or plain, unpacked piece by piece.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

struct z_stream_s;

namespace dtk {

/// Reads front to back. A file that starts with the two gzip magic bytes is unpacked (several members in a
/// row count as one), any other is passed through. The caller states how many bytes it wants, and never more
/// are unpacked: a file that would unpack to far more than it should costs no memory.
/// All errors are DataError and name the file. Not for use by two threads at once.
class GzipReader {
 public:
  explicit GzipReader(const std::filesystem::path& path);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Writes up to `limit` bytes to `out` and returns how many; fewer than `limit` only at the end of the
  /// data, which for gzip includes that its checksum was right and that nothing follows it.
  size_t read(uint8_t* out, size_t limit);

  bool compressed() const { return stream_ != nullptr; }
  uint64_t file_bytes() const { return file_bytes_; }
  /// An upper bound of what can be read in total, known before reading.
  uint64_t max_bytes() const;

 private:
  size_t inflate_some(uint8_t* out, size_t limit);
  void fill_input();
  void finish_member();

  std::filesystem::path path_;
  std::ifstream file_;
  uint64_t file_bytes_ = 0;
  uint64_t input_read_ = 0;  // bytes of the file taken so far
  std::vector<uint8_t> input_;
  std::unique_ptr<z_stream_s> stream_;  // null for a plain file
  bool ended_ = false;
};

}  // namespace dtk
