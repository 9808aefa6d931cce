// Zip archives byte by byte, for tests to damage. Without zip64, unlike those that the toolkit writes.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk::test {

/// How an error about a damaged file of torch.save ends.
inline const std::string write_again = "; get the file again, or write it again with torch.save";

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}

/// An entry; what is set differs from the truth, in the directory only.
struct ZipPart {
  std::string name = {}, data = {};
  uint16_t flags = 0, method = 0;
  std::optional<uint64_t> crc = {}, packed = {}, bytes = {}, header_at = {};
  std::optional<std::string> local_name = {};  // in the local header
  std::string extra = {};                      // of the directory
};

struct ZipEnd {
  std::optional<uint64_t> entries = {}, bytes = {}, offset = {};
};

inline uint32_t crc_of(const std::string& data) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const unsigned char*>(data.data()), static_cast<unsigned>(data.size())));
}

inline std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipEnd& end = {}) {
  std::string text, directory;
  for (const ZipPart& part : parts) {
    const uint64_t header_at = text.size(), crc = part.crc.value_or(crc_of(part.data));
    const std::string local_name = part.local_name.value_or(part.name);
    text += "PK\3\4" + little_endian(20, 2) + little_endian(part.flags, 2) + little_endian(part.method, 2) +
            little_endian(0, 4) + little_endian(crc, 4) + little_endian(part.data.size(), 4) +
            little_endian(part.data.size(), 4) + little_endian(local_name.size(), 2) + little_endian(0, 2) +
            local_name + part.data;
    directory += "PK\1\2" + little_endian(20, 2) + little_endian(20, 2) + little_endian(part.flags, 2) +
                 little_endian(part.method, 2) + little_endian(0, 4) + little_endian(crc, 4) +
                 little_endian(part.packed.value_or(part.data.size()), 4) +
                 little_endian(part.bytes.value_or(part.data.size()), 4) +
                 little_endian(part.name.size(), 2) + little_endian(part.extra.size(), 2) +
                 little_endian(0, 10) + little_endian(part.header_at.value_or(header_at), 4) + part.name +
                 part.extra;
  }
  const uint64_t offset = end.offset.value_or(text.size()), bytes = end.bytes.value_or(directory.size());
  const uint64_t entries = end.entries.value_or(parts.size());
  return text + directory + "PK\5\6" + little_endian(0, 4) + little_endian(entries, 2) +
         little_endian(entries, 2) + little_endian(bytes, 4) + little_endian(offset, 4) + little_endian(0, 2);
}

}  // namespace dtk::test
