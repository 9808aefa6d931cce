// NumPy's .npy files: the bytes "\x93NUMPY", a version, the length of a header that is a Python dictionary
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, then the values
// (numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
// Known dtypes: <f8 <f4 <f2 <i8 <i4 <i2 |i1 <u4 |u1 |b1, in C order. A file is data from outside: whatever it
// claims is checked before anything is read by it.
//
// Written by hand because cnpy is not in Debian and checks nothing of what a file claims.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/io/file_system.h"

namespace dtk {

/// What a .npy file says of its array.
struct NpyHeader {
  c10::ScalarType type = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  std::string descr;         // the dtype as the file has it
  size_t bytes = 0;          // of the header, with the magic bytes: the values begin here
  uint64_t value_bytes = 0;  // shape × element size
};

/// How many bytes the header of the file that begins with `first` has, at most npy_longest_header; `first` is
/// the file's first npy_first_bytes bytes, or the whole of a shorter file. Throws DataError that starts with
/// `file`.
size_t npy_header_bytes(std::string_view first, const std::string& file);
inline constexpr size_t npy_first_bytes = 12, npy_longest_header = 10'012;

/// The header at the beginning of `bytes`; what follows it is not looked at. Throws as parse_npy().
NpyHeader parse_npy_header(std::string_view bytes, const std::string& file);

/// Throws as parse_npy() unless `seen` bytes of values are what the header says.
void check_npy_values(const NpyHeader& header, uint64_t seen, const std::string& file);

struct NpyArray {
  c10::ScalarType type = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  std::string_view values;  // exactly shape × element size bytes, C order, little-endian; not aligned
};

/// "(2, 3)", "(5,)" or "()": a shape as NumPy shows it.
std::string numpy_shape(const std::vector<int64_t>& shape);

/// The array in a file's `bytes`, which it goes on pointing to. Versions 1.0 to 3.0. Throws DataError that
/// starts with `file` for what is no .npy file, of an unknown version or dtype, big-endian, in Fortran order,
/// of Python objects or records, truncated, longer than its shape says or too large to address.
NpyArray parse_npy(std::string_view bytes, const std::string& file);

/// Writes `tensor`, of any device and layout, as NumPy's save() does, byte for byte (version 1.0). Does not
/// sync or close. Throws std::invalid_argument for a dtype that is not known; FileError from `out`.
void write_npy(WritableFile& out, const at::Tensor& tensor);
/// What stands before the values of such a file, for who writes these in parts.
void write_npy_header(WritableFile& out, c10::ScalarType type, const std::vector<int64_t>& shape);

}  // namespace dtk
