// NumPy's .npy files: the bytes "\x93NUMPY", a version, the length of a header that is a Python dictionary
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, then the values
// (numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
// Known dtypes: <f8 <f4 <f2 <i8 <i4 <i2 |i1 |u1 |b1, in C order. A file is data from outside: whatever it
// claims is checked before anything is read by it.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <dtk/toolkit/file_system.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

struct NpyArray {
  c10::ScalarType type = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  std::string_view values;  // exactly shape × element size bytes, C order, little-endian; not aligned
};

/// The array in a file's `bytes`, which it goes on pointing to. Versions 1.0 to 3.0. Throws DataError that
/// starts with `file` for what is no .npy file, of an unknown version or dtype, big-endian, in Fortran order,
/// of Python objects or records, truncated, longer than its shape says or too large to address.
NpyArray parse_npy(std::string_view bytes, const std::string& file);

/// Writes `tensor`, of any device and layout, as NumPy's save() does, byte for byte (version 1.0). Does not
/// sync or close. Throws std::invalid_argument for a dtype that is not known; FileError from `out`.
void write_npy(WritableFile& out, const at::Tensor& tensor);

}  // namespace dtk
