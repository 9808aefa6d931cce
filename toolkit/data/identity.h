// What tells one set of data from another: the names of its classes, and what each of them holds.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/io/sha256.h"

namespace dtk {

class DataSource;

/// A file that holds samples of all classes.
struct DataFile {
  std::string name;  // without its folder: data may move
  int64_t bytes = 0;
  friend bool operator==(const DataFile&, const DataFile&) = default;
};

/// The samples with one label; of data without classes, all of them.
struct DataClass {
  int64_t label = 0;
  std::string name;  // as messages show it; the label where the data have no names
  int64_t samples = 0;
  std::string sha256;  // of what its samples are called within the class, and of their sizes
  friend bool operator==(const DataClass&, const DataClass&) = default;
};

/// Throws DataError, as whoever has read the file does not expect.
DataFile data_file(const std::filesystem::path& path);

struct DataIdentity {
  std::vector<DataFile> files;
  std::vector<DataClass> classes;  // by label; without those that have no samples
  std::string contents = {};       // contents_sha256(), where it was asked for
  // Samples whose held_out_hash() is below it are never trained on; absent where none are held out.
  std::optional<uint64_t> held_out_below = {};
};

/// Of one class, sample by sample.
class ClassDigest {
 public:
  /// `name`: unique within the class; empty where samples have none, whose position then counts.
  void add(std::string_view name, int64_t position, int64_t bytes);
  /// Ends it.
  DataClass finish(int64_t label, std::string name);

 private:
  Sha256 hash_;
  int64_t samples_ = 0;
};

/// Those of `labels`, named by their numbers, of samples known by their positions.
std::vector<DataClass> numbered_classes(const std::vector<int64_t>& labels);

/// SHA-256 of every value of every sample, in the source's order, as float or whatever a batch holds. Reads
/// all samples once. Throws as DataSource::read().
std::string contents_sha256(const DataSource& source);

/// SHA-256 of files, classes and contents, 64 hexadecimal digits.
std::string fingerprint(const DataIdentity& identity);

/// data.json: one JSON object, with the fingerprint.
std::string identity_text(const DataIdentity& identity);
/// Throws FileError that begins with `path`: not what identity_text() writes.
DataIdentity parse_identity(std::string_view text, const std::string& path);

/// What is another in `now` than it was in `then`, each a sentence without its end, most important first;
/// empty: nothing. Contents are compared where both have them.
std::vector<std::string> differences(const DataIdentity& then, const DataIdentity& now);

/// By label; empty where classes have their numbers as names.
std::vector<std::string> names_in(const DataIdentity& identity);

/// Pseudo-random, uniform in 64 bits: a pure function of the seed and of the sample's name, or of its
/// position where it has none. Which samples are held out is defined by it.
uint64_t held_out_hash(uint64_t seed, std::string_view name, int64_t position);

}  // namespace dtk
