#include "toolkit/io/npz.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/json.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/zip_reader.h"
#include "toolkit/io/zip_writer.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view extension = ".npy";

/// Nothing is ever unpacked to a file, so such a name does no harm here; whoever writes it means some.
bool leads_out(std::string_view name) {
  if (name.find_first_of(std::string_view("\\:\0", 3)) != name.npos || name.starts_with('/')) return true;
  const std::filesystem::path parts(name);
  return std::find(parts.begin(), parts.end(), "..") != parts.end();
}

ZipReader open_zip(std::unique_ptr<ReadableFile> file, const Path& path) try {
  ZipReader zip(std::move(file), path, npz_zip);
  for (const std::string& name : zip.names()) {
    if (!leads_out(name)) continue;
    refuse_data(path, fmt::format("zip entry {} has a name that leads out of a folder{}", in_quotes(name),
                                  save_npz_again));
  }
  return zip;
} catch (const FileError& error) {
  throw DataError(error.what());  // it names the file
}

void check_type(const NpzArray& expected, const NpyHeader& seen, const Path& path, const std::string& name) {
  if (seen.type == expected.type) return;
  if (expected.or_double && seen.type == c10::ScalarType::Double) return;
  const std::string wanted = dtype_name(expected.type);
  refuse_data(path, fmt::format("{} is {}; allowed: {}{}; save it as {}", name, dtype_name(seen.type), wanted,
                                expected.or_double ? " or float64" : "", wanted));
}

void check_shape(const NpzArray& expected, const NpyHeader& seen, const Path& path, const std::string& name) {
  std::vector<int64_t> wanted = expected.shape;
  const bool more_rows = expected.max_rows && !seen.shape.empty() && seen.shape[0] >= wanted[0] &&
                         seen.shape[0] <= *expected.max_rows;
  if (more_rows) wanted[0] = seen.shape[0];
  if (seen.shape == wanted) return;
  const std::string rows = expected.max_rows ? fmt::format(" with up to {} rows", *expected.max_rows) : "";
  refuse_data(path, fmt::format("{} has the shape {}; allowed: {}{}; {}", name, numpy_shape(seen.shape),
                                numpy_shape(expected.shape), rows, expected.other_shape_advice));
}

NpyHeader read_header(ZipEntryReader& entry, uint64_t entry_bytes, const std::string& name) {
  std::string text(static_cast<size_t>(std::min<uint64_t>(npy_first_bytes, entry_bytes)), '\0');
  entry.read(text.data(), text.size());
  const size_t first = text.size();
  text.resize(static_cast<size_t>(std::min<uint64_t>(npy_header_bytes(text, name), entry_bytes)));
  if (text.size() > first) entry.read(text.data() + first, text.size() - first);
  return parse_npy_header(text, name);
}

/// Calls use(piece, bytes) for the next `bytes` bytes of the entry, in pieces of whole `Number`s.
template <class Number, class Use>
void in_pieces(ZipEntryReader& entry, uint64_t bytes, const Use& use) {
  std::vector<Number> piece(static_cast<size_t>(std::min<uint64_t>(8192, bytes / sizeof(Number))));
  while (bytes > 0) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(piece.size(), bytes / sizeof(Number)));
    entry.read(piece.data(), count * sizeof(Number));
    use(piece.data(), count);
    bytes -= count * sizeof(Number);
  }
}

/// A file in memory.
class Buffer : public WritableFile {
 public:
  void write(const void* data, size_t bytes) override {
    content.append(static_cast<const char*>(data), bytes);
  }
  void sync() override {}
  void close() override {}

  std::string content;
};

}  // namespace

NpzReader::NpzReader(const Path& path) : NpzReader(open_data(path), path) {}

NpzReader::NpzReader(std::unique_ptr<ReadableFile> file, const Path& path)
    : zip_(open_zip(std::move(file), path)) {}

std::vector<std::string> NpzReader::keys() const {
  std::vector<std::string> keys;
  for (const std::string& name : zip_.names()) {
    if (name.ends_with(extension)) keys.push_back(name.substr(0, name.size() - extension.size()));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

bool NpzReader::has(const std::string& key) const {
  return zip_.find_any(key + std::string(extension)) != nullptr;
}

std::vector<int64_t> NpzReader::shape(const std::string& key) const try {
  const ZipEntry& entry = entry_of(key);
  const std::string name = "array " + in_quotes(key);
  ZipEntryReader reader(zip_, entry, name);
  return read_header(reader, entry.bytes, zip_.path().string() + ": " + name).shape;
} catch (const FileError& error) {
  throw DataError(error.what());  // it names the file
}

void NpzReader::read(const NpzArray& expected, void* data) const try {
  read_entry(expected, entry_of(expected.key), data);
} catch (const FileError& error) {
  throw DataError(error.what());  // it names the file
}

const ZipEntry& NpzReader::entry_of(const std::string& key) const {
  const ZipEntry* const entry = zip_.find_any(key + std::string(extension));
  if (entry != nullptr) return *entry;
  std::vector<std::string> all = keys();
  constexpr size_t max_shown = 20;
  if (all.size() > max_shown) {
    all.resize(max_shown);
    all.push_back("...");
  }
  refuse_data(zip_.path(), fmt::format("has no array {}; it holds {}; store the array under that name",
                                       in_quotes(key), all.empty() ? "none" : listed(all, ", ")));
}

void NpzReader::read_entry(const NpzArray& expected, const ZipEntry& entry, void* data) const {
  const std::string name = "array " + in_quotes(expected.key), place = zip_.path().string() + ": " + name;
  ZipEntryReader reader(zip_, entry, name);
  const NpyHeader header = read_header(reader, entry.bytes, place);
  check_type(expected, header, zip_.path(), name);
  check_shape(expected, header, zip_.path(), name);
  check_npy_values(header, entry.bytes - header.bytes, place);
  const uint64_t taken = bytes_of_values(header.type, expected.shape).value();
  if (header.type == expected.type) {
    reader.read(data, static_cast<size_t>(taken));
  } else {
    auto* out = static_cast<float*>(data);
    in_pieces<double>(reader, taken, [&out](const double* piece, size_t count) {
      out = std::transform(piece, piece + count, out, [](double value) { return static_cast<float>(value); });
    });
  }
  in_pieces<char>(reader, header.value_bytes - taken, [](const char*, size_t) {});
  reader.finish();
}

NpzWriter::NpzWriter(WritableFile& out, Packing packing)
    : zip_(std::make_unique<ZipWriter>(out)), packing_(packing) {}

NpzWriter::~NpzWriter() = default;

void NpzWriter::add(const std::string& key, const at::Tensor& tensor) {
  Buffer file;
  write_npy(file, tensor);
  const std::string name = key + std::string(extension);
  if (packing_ == Packing::deflated) {
    zip_->add_deflated(name, file.content.data(), file.content.size());
  } else {
    zip_->add(name, file.content.data(), file.content.size());
  }
}

void NpzWriter::finish() {
  zip_->finish();
}

}  // namespace dtk
