#include "toolkit/io/zip_reader.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/json.h"
#include "toolkit/io/zip_layout.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

constexpr size_t input_bytes = size_t{64} << 10;
constexpr uint16_t encrypted_flag = 1;

/// Where the central directory lies and how many entries it has.
struct Directory {
  uint64_t offset, bytes, entries;
};

/// An entry and the bytes [begin, end) that its local header and its data take in the file.
struct Extent {
  uint64_t begin, end;
  std::string name;
};

using Entries = std::map<std::string, ZipEntry>;

/// Reads the directory of one archive; every message begins with the file.
class DirectoryReader {
 public:
  DirectoryReader(ReadableFile& file, const Path& path, const ZipKind& kind)
      : file_(file), path_(path), kind_(kind), file_bytes_(file.size()) {}

  Entries read() {
    const Directory directory = find_directory();
    const std::string text = bytes_at(directory.offset, directory.bytes);
    Entries entries;
    std::vector<Extent> extents;
    size_t at = 0;
    for (uint64_t i = 0; i < directory.entries; ++i) at += read_entry(text, at, directory, entries, extents);
    if (at != text.size()) fail(fmt::format("the directory holds {} bytes too many", text.size() - at));
    check_extents(extents);
    return entries;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}{}", path_.string(), what, kind_.again));
  }

  std::string bytes_at(uint64_t offset, uint64_t bytes) const {
    std::string text(bytes, '\0');
    if (bytes > 0) file_.read_into(offset, text.data(), text.size());
    return text;
  }

  /// The end record is the file's last bytes: torch.save and NumPy write no comment behind it.
  Directory find_directory() const {
    const std::string no_end =
        std::string("no zip directory at the end of the file, so it is cut off, or not ") + kind_.file;
    if (file_bytes_ < zip_end_bytes) fail(no_end);
    const uint64_t end_at = file_bytes_ - zip_end_bytes;
    const std::string end = bytes_at(end_at, zip_end_bytes);
    if (zip_u32(end.data()) != zip_end_signature || zip_u16(end.data() + 20) != 0) fail(no_end);
    Directory directory{zip_u32(end.data() + 16), zip_u32(end.data() + 12), zip_u16(end.data() + 10)};
    // torch.save writes the zip64 record always, and what fits into the old one there too.
    const bool in_zip64 = directory.offset == zip_elsewhere_32 || directory.bytes == zip_elsewhere_32 ||
                          directory.entries == zip_elsewhere_16 || has_zip64_locator(end_at);
    uint64_t directory_end = end_at;
    if (in_zip64) directory = zip64_directory(end_at, directory_end);
    // Subtractions only: a sum could overflow.
    if (directory.offset > directory_end || directory.bytes != directory_end - directory.offset) {
      fail("the zip directory does not lie where the end of the file says");
    }
    if (directory.bytes > kind_.max_directory_bytes) {
      fail(fmt::format("the zip directory takes {} bytes; at most {} are read", directory.bytes,
                       kind_.max_directory_bytes));
    }
    if (directory.entries > directory.bytes / zip_central_bytes)
      fail(fmt::format("the zip directory has no room for its {} entries", directory.entries));
    return directory;
  }

  bool has_zip64_locator(uint64_t end_at) const {
    return end_at >= zip64_locator_bytes &&
           zip_u32(bytes_at(end_at - zip64_locator_bytes, 4).data()) == zip64_locator_signature;
  }

  Directory zip64_directory(uint64_t end_at, uint64_t& directory_end) const {
    const std::string wrong = "the zip64 end of the directory is missing or damaged";
    if (end_at < zip64_locator_bytes) fail(wrong);
    const std::string locator = bytes_at(end_at - zip64_locator_bytes, zip64_locator_bytes);
    const uint64_t record_at = zip_u64(locator.data() + 8);
    const uint64_t limit = end_at - zip64_locator_bytes;
    if (zip_u32(locator.data()) != zip64_locator_signature || record_at > limit ||
        limit - record_at != zip64_end_bytes) {
      fail(wrong);
    }
    const std::string record = bytes_at(record_at, zip64_end_bytes);
    if (zip_u32(record.data()) != zip64_end_signature) fail(wrong);
    directory_end = record_at;
    return {zip_u64(record.data() + 48), zip_u64(record.data() + 40), zip_u64(record.data() + 32)};
  }

  /// Reads the entry at `at` of the directory's text and returns how many bytes it takes there.
  size_t read_entry(const std::string& text, size_t at, const Directory& directory, Entries& entries,
                    std::vector<Extent>& extents) const {
    const std::string damaged = fmt::format("entry {} of the zip directory is damaged", extents.size());
    if (text.size() - at < zip_central_bytes) fail(damaged);
    const char* const fields = text.data() + at;
    const size_t name_bytes = zip_u16(fields + 28), extra_bytes = zip_u16(fields + 30);
    const size_t all = zip_central_bytes + name_bytes + extra_bytes + zip_u16(fields + 32);
    if (zip_u32(fields) != zip_central_signature || text.size() - at < all) fail(damaged);
    const std::string name(fields + zip_central_bytes, name_bytes);
    const std::string where = "zip entry " + in_quotes(name);
    if (zip_u16(fields + 8) & encrypted_flag)
      fail(fmt::format("{} is encrypted, and {} encrypts nothing", where, kind_.writer));
    const uint16_t method = zip_u16(fields + 10);
    uint64_t packed = zip_u32(fields + 20), bytes = zip_u32(fields + 24), header_at = zip_u32(fields + 42);
    read_zip64_extra(std::string_view(fields + zip_central_bytes + name_bytes, extra_bytes), where,
                     {&bytes, &packed, &header_at});
    if (method == zip_stored && packed != bytes) fail(where + " has two sizes");
    const uint64_t begin = data_offset(name, where, header_at, directory.offset);
    if (packed > directory.offset - begin) fail(where + " reaches beyond the data of the file");
    const ZipEntry entry = {begin, bytes, zip_u32(fields + 16), packed, method};
    if (!entries.emplace(name, entry).second) fail(where + " is there twice");
    extents.push_back({header_at, begin + packed, name});
    return all;
  }

  /// Replaces those of `fields` that say "elsewhere" by the values of the zip64 extra field, which has no
  /// others and keeps this order.
  void read_zip64_extra(std::string_view extra, const std::string& where,
                        std::initializer_list<uint64_t*> fields) const {
    std::string_view values;
    while (extra.size() >= 4) {
      const uint16_t id = zip_u16(extra.data()), bytes = zip_u16(extra.data() + 2);
      extra.remove_prefix(4);
      if (bytes > extra.size()) fail(where + " has a damaged extra field");
      if (id == zip64_extra_id) values = extra.substr(0, bytes);
      extra.remove_prefix(bytes);
    }
    for (uint64_t* field : fields) {
      if (*field != zip_elsewhere_32) continue;
      if (values.size() < 8) fail(where + " lacks its zip64 sizes");
      *field = zip_u64(values.data());
      values.remove_prefix(8);
    }
  }

  /// Behind the local header, whose name and extra field may have other lengths than the directory's.
  uint64_t data_offset(const std::string& name, const std::string& where, uint64_t header_at,
                       uint64_t limit) const {
    const std::string wrong = where + " does not lie where the zip directory says";
    if (header_at > limit || limit - header_at < zip_local_bytes + name.size()) fail(wrong);
    const std::string header = bytes_at(header_at, zip_local_bytes + name.size());
    const size_t name_bytes = zip_u16(header.data() + 26), extra_bytes = zip_u16(header.data() + 28);
    if (zip_u32(header.data()) != zip_local_signature || name_bytes != name.size() ||
        header.compare(zip_local_bytes, name_bytes, name) != 0 ||
        limit - header_at < zip_local_bytes + name_bytes + extra_bytes) {
      fail(wrong);
    }
    return header_at + zip_local_bytes + name_bytes + extra_bytes;
  }

  void check_extents(std::vector<Extent>& extents) const {
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < extents.size(); ++i) {
      if (extents[i].begin >= extents[i - 1].end) continue;
      fail(fmt::format("zip entries {} and {} overlap", in_quotes(extents[i - 1].name),
                       in_quotes(extents[i].name)));
    }
  }

  ReadableFile& file_;
  const Path& path_;
  const ZipKind& kind_;
  const uint64_t file_bytes_;
};

}  // namespace

const ZipKind torch_zip = {"a file of torch.save", "torch.save", write_torch_file_again, uint64_t{64} << 20};
const ZipKind npz_zip = {"a .npz file", "NumPy", save_npz_again, uint64_t{512} << 10};

ZipReader::ZipReader(FileSystem& files, const Path& path)
    : ZipReader(read_by_name(files, path), path, torch_zip) {}

ZipReader::ZipReader(std::unique_ptr<ReadableFile> file, Path path, const ZipKind& kind)
    : file_(std::move(file)), path_(std::move(path)), entries_(DirectoryReader(*file_, path_, kind).read()) {}

std::vector<std::string> ZipReader::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : entries_) all.push_back(name);
  return all;
}

const ZipEntry* ZipReader::find_any(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

const ZipEntry* ZipReader::find(const std::string& name) const {
  const ZipEntry* const entry = find_any(name);
  if (entry == nullptr || entry->method == zip_stored) return entry;
  throw FileError(
      fmt::format("{}: zip entry {} is compressed, and torch.save stores its entries as they are; unpack "
                  "the archive and pack it again with zip -0, or save it again with torch.save",
                  path_.string(), in_quotes(name)));
}

void ZipReader::read_all(const std::string& name, void* data) const {
  const ZipEntry& entry = entries_.at(name);
  read_packed(entry, 0, data, entry.bytes);
  check_crc(name, zip_crc(0, data, entry.bytes));
}

void ZipReader::read_packed(const ZipEntry& entry, uint64_t begin, void* data, size_t bytes) const {
  if (bytes > 0) file_->read_into(entry.offset + begin, data, bytes);
}

void ZipReader::verify(const std::string& name) const {
  constexpr uint64_t piece_bytes = uint64_t{1} << 20;
  const ZipEntry& entry = entries_.at(name);
  std::string piece(std::min(entry.bytes, piece_bytes), '\0');
  uint32_t crc = 0;
  for (uint64_t begin = 0; begin < entry.bytes; begin += piece_bytes) {
    const size_t bytes = std::min(piece_bytes, entry.bytes - begin);
    read_packed(entry, begin, piece.data(), bytes);
    crc = zip_crc(crc, piece.data(), bytes);
  }
  check_crc(name, crc);
}

void ZipReader::check_crc(const std::string& name, uint32_t seen) const {
  const uint32_t stored = entries_.at(name).crc32;
  if (stored == 0 || stored == seen) return;
  throw FileError(fmt::format("{}: zip entry {} has changed since it was written (its CRC-32 differs){}",
                              path_.string(), in_quotes(name), write_torch_file_again));
}

ZipEntryReader::ZipEntryReader(const ZipReader& zip, const ZipEntry& entry, std::string name)
    : zip_(zip), entry_(entry), name_(std::move(name)) {
  if (entry.method == zip_stored) return;
  if (entry.method != zip_deflated) {
    fail(fmt::format("is compressed by method {}; read are 0 (stored) and 8 (deflate)", entry.method));
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
  refuse_data(zip_.path(), fmt::format("{} {}{}", name_, what, save_npz_again));
}

void ZipEntryReader::read(void* data, size_t bytes) {
  if (bytes > entry_.bytes - unpacked_) {
    fail(fmt::format("ends after {} bytes; {} were wanted", entry_.bytes, unpacked_ + bytes));
  }
  auto* const out = static_cast<unsigned char*>(data);
  if (stream_ == nullptr) {
    zip_.read_packed(entry_, unpacked_, out, bytes);
  } else if (const size_t made = inflate_some(out, bytes); made < bytes) {
    fail(fmt::format("unpacks to {} bytes, and the zip directory says {}", unpacked_ + made, entry_.bytes));
  }
  unpacked_ += bytes;
  crc_ = zip_crc(crc_, out, bytes);
}

/// Fewer than `bytes` bytes only at the end of the packed data.
size_t ZipEntryReader::inflate_some(unsigned char* data, size_t bytes) {
  constexpr size_t call_limit = size_t{1} << 30;  // zlib counts in 32 bits
  size_t made = 0;
  while (made < bytes && !ended_) {
    if (stream_->avail_in == 0 && taken_ < entry_.packed) fill_input();
    const size_t room = std::min(bytes - made, call_limit);
    stream_->next_out = data + made;
    stream_->avail_out = static_cast<uInt>(room);
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    made += room - stream_->avail_out;
    // Without input zlib may still hold output; that it has neither is the end of data that are cut off.
    const bool cut_off = status == Z_BUF_ERROR && stream_->avail_in == 0 && taken_ == entry_.packed;
    if (cut_off) fail(fmt::format("has compressed data that end too early, after {} bytes", entry_.packed));
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      const char* const reason = stream_->msg != nullptr ? stream_->msg : zError(status);
      fail(fmt::format("has corrupt compressed data ({})", reason));
    }
  }
  return made;
}

void ZipEntryReader::fill_input() {
  const auto bytes = static_cast<size_t>(std::min<uint64_t>(input_.size(), entry_.packed - taken_));
  zip_.read_packed(entry_, taken_, input_.data(), bytes);
  taken_ += bytes;
  stream_->next_in = input_.data();
  stream_->avail_in = static_cast<uInt>(bytes);
}

void ZipEntryReader::finish() {
  if (unpacked_ != entry_.bytes) {
    fail(fmt::format("holds {} bytes; only {} were wanted", entry_.bytes, unpacked_));
  }
  if (stream_) {
    unsigned char more = 0;
    if (inflate_some(&more, 1) > 0) {
      fail(fmt::format("unpacks to more than the {} bytes that the zip directory says", entry_.bytes));
    }
    if (const uint64_t left = entry_.packed - taken_ + stream_->avail_in; left > 0) {
      fail(fmt::format("has {} bytes behind the end of its compressed data", left));
    }
  }
  if (crc_ != entry_.crc32) fail("has changed since it was written (its CRC-32 differs)");
}

bool begins_as_zip(FileSystem& files, const Path& path) {
  char first[4] = {};
  if (files.size(path) < sizeof first) return false;
  files.read_into(path, 0, first, sizeof first);
  return zip_u32(first) == zip_local_signature;
}

}  // namespace dtk
