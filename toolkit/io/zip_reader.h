// Entries of a zip archive: those that are stored without compression as they are, as torch.save stores them;
// of compressed ones the packed bytes.
//
// The archive is data from outside: its directory is checked as a whole before any entry is read, and no
// entry may share a byte with another or with the directory. Zip64 is read. Source of the layout: PKWARE's
// APPNOTE.TXT, sections 4.3 and 4.5.3.
//
// Written by hand because neither libzip nor PyTorchStreamReader checks the whole directory (overlap, bounds,
// sizes before memory is taken) before it reads, by pread on one descriptor, a byte of an entry.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"

struct z_stream_s;

namespace dtk {

struct ZipEntry {
  uint64_t offset = 0;  // of its data in the file
  uint64_t bytes = 0;
  uint32_t crc32 = 0;   // of the unpacked data; 0 in torch.save's files: it was not computed
  uint64_t packed = 0;  // bytes that the data take in the file
  uint16_t method = 0;  // 0: stored as they are, 8: deflate
};

/// What an archive of one kind may be, and what messages say of it.
struct ZipKind {
  const char* file;              // "... so it is cut off, or not <file>"
  const char* writer;            // "... is encrypted, and <writer> encrypts nothing"
  const char* again;             // the end of the message
  uint64_t max_directory_bytes;  // a larger directory is refused before it is read
};
extern const ZipKind torch_zip, npz_zip;

class ZipReader {
 public:
  /// Reads the directory only. `files` must outlive this. Throws FileError naming the file for anything that
  /// is not such an archive: cut off, encrypted, overlapping, inconsistent.
  ZipReader(FileSystem& files, const std::filesystem::path& path);
  /// The same for an opened file of any kind; `path` is what messages call it.
  ZipReader(std::unique_ptr<ReadableFile> file, std::filesystem::path path, const ZipKind& kind);

  /// Of all entries, sorted.
  std::vector<std::string> names() const;
  /// Null if there is no entry of this name. Throws FileError for one that is compressed.
  const ZipEntry* find(const std::string& name) const;
  /// The same for entries of any method.
  const ZipEntry* find_any(const std::string& name) const;
  const std::filesystem::path& path() const { return path_; }

  // Of entries that find() finds:

  /// Fills `data`, which holds the entry's bytes. Throws FileError if its CRC-32 differs.
  void read_all(const std::string& name, void* data) const;
  /// Fills `data` with `bytes` bytes from byte `begin` of the entry's packed data on, which must lie in them.
  /// Nothing is checked.
  void read_packed(const ZipEntry& entry, uint64_t begin, void* data, size_t bytes) const;
  /// Compares the entry's CRC-32, a piece at a time. Throws FileError if it differs.
  void verify(const std::string& name) const;

 private:
  void check_crc(const std::string& name, uint32_t seen) const;

  std::unique_ptr<ReadableFile> file_;
  std::filesystem::path path_;
  std::map<std::string, ZipEntry> entries_;
};

/// The data of one entry from front to back, unpacked. The caller states how many bytes it wants, and no more
/// are ever unpacked. All errors are DataError that begin with the file and the entry.
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

/// Whether the file begins as a zip archive does.
bool begins_as_zip(FileSystem& files, const std::filesystem::path& path);

}  // namespace dtk
