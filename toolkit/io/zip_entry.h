// The data of one zip entry from front to back, unpacked.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/io/zip_reader.h"

struct z_stream_s;

namespace dtk {

/// The caller states how many bytes it wants, and no more are ever unpacked. All errors are DataError that
/// begin with the file and the entry.
class ZipEntryReader {
 public:
  /// `zip` and `entry`, one of it, must outlive this; `name` is what messages call it.
  ZipEntryReader(const ZipReader& zip, const ZipEntry& entry, std::string name);
  ~ZipEntryReader();
  ZipEntryReader(const ZipEntryReader&) = delete;
  ZipEntryReader& operator=(const ZipEntryReader&) = delete;

  /// Fills `data` with the next `bytes` bytes, straight from the file where the entry is stored as it is.
  void read(void* data, size_t bytes);
  /// To be called after the entry's last byte: nothing may follow it, and the CRC-32 must be right.
  void finish();

 private:
  [[noreturn]] void fail(const std::string& what) const;
  size_t inflate_some(unsigned char* data, size_t bytes);
  void fill_input();

  const ZipReader& zip_;
  const ZipEntry& entry_;
  const std::string name_;
  uint64_t unpacked_ = 0;  // bytes given out
  uint64_t taken_ = 0;     // packed bytes read from the file
  uint32_t crc_ = 0;
  std::vector<unsigned char> input_;
  std::unique_ptr<z_stream_s> stream_;  // null for a stored entry
  bool ended_ = false;                  // the packed data said so
};

}  // namespace dtk
