// NumPy's .npz files: a zip archive with an entry "<key>.npy" for each array, deflated by
// numpy.savez_compressed, as it is by numpy.savez.
//
// A file is data from outside. Whoever reads says what an array has to be, and what the file claims is
// compared with that before a value is unpacked or memory is taken for it: a file can never cost more than
// what was asked for.
//
// Written by hand because cnpy is not in Debian and checks nothing of what a file claims.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"
#include "toolkit/io/zip_reader.h"

namespace dtk {

class ZipWriter;

/// What an array has to be.
struct NpzArray {
  std::string key;
  c10::ScalarType type = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  /// The file may hold up to so many rows (the first size of the shape); shape[0] of them are read, the first
  /// ones.
  std::optional<int64_t> max_rows = {};
  bool or_double = false;  // of a float array: the file may hold float64, which is rounded
  std::string other_shape_advice = "save it in that shape";
};

/// Not for two threads at once; holds the file open.
class NpzReader {
 public:
  /// Reads the zip directory only. Throws DataError naming the file: for what is no such archive
  /// (zip_reader.h), and for entries whose names lead out of a folder, which NumPy never writes.
  explicit NpzReader(const std::filesystem::path& path);
  /// The same of an opened file, which messages call `path`.
  NpzReader(std::unique_ptr<ReadableFile> file, const std::filesystem::path& path);

  /// Of all arrays, sorted.
  std::vector<std::string> keys() const;
  bool has(const std::string& key) const;
  /// What the file says of the array `key`; nothing of it is compared with the values. Throws DataError as
  /// read(), for a file whose header cannot be read.
  std::vector<int64_t> shape(const std::string& key) const;

  /// Fills `data`, which has room for expected.shape, with the array's values, in C order. Deflated values
  /// are unpacked right there, and stored ones read right there. Throws DataError naming file and key if the
  /// array is missing, of another dtype or shape, in Fortran order, of Python objects, compressed otherwise,
  /// longer or shorter than its header or the zip directory says, or of another CRC-32; then `data` may have
  /// been written to.
  void read(const NpzArray& expected, void* data) const;

 private:
  const ZipEntry& entry_of(const std::string& key) const;
  void read_entry(const NpzArray& expected, const ZipEntry& entry, void* data) const;

  ZipReader zip_;
};

/// Writes a .npz file front to back; what it writes depends on the arrays alone.
class NpzWriter {
 public:
  enum class Packing { deflated, stored };

  /// `out` must outlive this.
  explicit NpzWriter(WritableFile& out, Packing packing = Packing::deflated);
  ~NpzWriter();

  /// Adds an array, each key once; as write_npy(). A deflated one is in memory twice meanwhile.
  void add(const std::string& key, const at::Tensor& tensor);
  /// Writes the zip directory; nothing can be added afterwards. Does not sync or close `out`.
  void finish();

 private:
  const std::unique_ptr<ZipWriter> zip_;
  const Packing packing_;
};

}  // namespace dtk
