#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "fuzz/input_files.h"
#include "fuzz/target.h"
#include "toolkit/io/zip_reader.h"

namespace dtk::fuzz {
namespace {

constexpr uint64_t kMaxEntryBytes = 1 << 20;

/// The entry unpacked by zlib in one go; nothing if it is damaged.
bool is_whole(const ZipReader& zip, const ZipEntry& entry, std::string& unpacked) {
  std::string packed(entry.packed, '\0');
  zip.read_packed(entry, 0, packed.data(), packed.size());
  unpacked.assign(entry.bytes + 1, '\0');
  if (entry.method == 0) {
    unpacked = packed;
  } else {
    z_stream stream = {};
    inflateInit2(&stream, -15);
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(unpacked.data());
    stream.avail_out = static_cast<uInt>(unpacked.size());
    const int result = inflate(&stream, Z_FINISH);
    const bool all = stream.avail_in == 0;
    unpacked.resize(stream.total_out);
    inflateEnd(&stream);
    if (result != Z_STREAM_END || !all) return false;
  }
  return unpacked.size() == entry.bytes &&
         crc32_z(0, reinterpret_cast<const Bytef*>(unpacked.data()), unpacked.size()) == entry.crc32;
}

/// The first byte chooses how large the pieces are in which entries are read: whatever it is, what zlib takes
/// for whole has to be read, and alike.
void read_archive(std::string_view input) {
  if (input.empty()) return;
  const size_t piece = 1 + static_cast<unsigned char>(input[0]) * size_t{37};
  const ZipReader zip(std::make_unique<BytesFile>(input.substr(1)), "input", npz_zip);
  for (const std::string& name : zip.names()) {
    const ZipEntry& entry = *zip.find_any(name);
    if (entry.bytes > kMaxEntryBytes || (entry.method != 0 && entry.method != 8)) continue;
    std::string expected, seen(entry.bytes, '\0');
    const bool whole = is_whole(zip, entry, expected);
    try {
      ZipEntryReader reader(zip, entry, name);
      for (size_t at = 0; at < seen.size(); at += piece)
        reader.read(seen.data() + at, std::min(piece, seen.size() - at));
      reader.finish();
    } catch (const DataError&) {
      if (whole) std::abort();  // a valid file is refused
      throw;
    }
    if (!whole || seen != expected) std::abort();
  }
}

int64_t max_bytes_of_archive(std::string_view input) {
  return linear<16, 256>(input) + 4 * static_cast<int64_t>(kMaxEntryBytes);
}

}  // namespace

const Target archive = {read_archive, max_bytes_of_archive};

}  // namespace dtk::fuzz
