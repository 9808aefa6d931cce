// The dtypes of tensors in files, by the names that each kind of file has for them.
#pragma once
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

constexpr size_t max_tensor_dimensions = 64;  // LibTorch's operators take no more

/// The names of one dtype; "" where such files do not have it.
struct FileDtype {
  c10::ScalarType type;
  std::string_view torch;    // "torch.float32"
  std::string_view storage;  // "torch.FloatStorage": the class that stands for it in a pickle of torch.save
  std::string_view safetensors, npy;
};

inline constexpr std::array<FileDtype, 11> file_dtypes = {{
    {c10::ScalarType::Double, "torch.float64", "torch.DoubleStorage", "F64", "<f8"},
    {c10::ScalarType::Float, "torch.float32", "torch.FloatStorage", "F32", "<f4"},
    {c10::ScalarType::Half, "torch.float16", "torch.HalfStorage", "F16", "<f2"},
    {c10::ScalarType::BFloat16, "torch.bfloat16", "torch.BFloat16Storage", "BF16", ""},
    {c10::ScalarType::Long, "torch.int64", "torch.LongStorage", "I64", "<i8"},
    {c10::ScalarType::Int, "torch.int32", "torch.IntStorage", "I32", "<i4"},
    {c10::ScalarType::Short, "torch.int16", "torch.ShortStorage", "I16", "<i2"},
    {c10::ScalarType::Char, "torch.int8", "torch.CharStorage", "I8", "|i1"},
    {c10::ScalarType::UInt32, "", "", "", "<u4"},
    {c10::ScalarType::Byte, "torch.uint8", "torch.ByteStorage", "U8", "|u1"},
    {c10::ScalarType::Bool, "torch.bool", "torch.BoolStorage", "BOOL", "|b1"},
}};

/// Whose names: &FileDtype::npy.
using DtypeNames = std::string_view FileDtype::*;

/// The type that `names` call `name`.
inline std::optional<c10::ScalarType> type_named(std::string_view name, DtypeNames names) {
  for (const FileDtype& known : file_dtypes) {
    if (known.*names == name && !name.empty()) return known.type;
  }
  return std::nullopt;
}

/// What `names` call `type`; "" if they do not have it.
inline std::string_view name_among(DtypeNames names, c10::ScalarType type) {
  const auto found = std::find_if(file_dtypes.begin(), file_dtypes.end(),
                                  [type](const FileDtype& known) { return known.type == type; });
  return found == file_dtypes.end() ? "" : (*found).*names;
}

/// All `names` for a message, without "torch.": "float64 float32 ...".
inline std::string listed(DtypeNames names) {
  std::string text;
  for (const FileDtype& known : file_dtypes) {
    const std::string_view name = known.*names;
    if (!name.empty()) text.append(text.empty() ? "" : " ").append(name.substr(name.find('.') + 1));
  }
  return text;
}

/// "float32"
inline std::string dtype_name(c10::ScalarType type) {
  if (type == c10::ScalarType::UInt32) return "uint32";  // of NumPy's files alone
  const std::string_view name = name_among(&FileDtype::torch, type);
  return name.empty() ? c10::toString(type) : std::string(name.substr(name.find('.') + 1));
}

/// Bytes of all values of a tensor; nothing if they are too many to address. A size of 0 counts as 1 against
/// overflow: LibTorch multiplies the other sizes for the strides.
inline std::optional<uint64_t> bytes_of_values(c10::ScalarType type, const std::vector<int64_t>& shape) {
  auto largest = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(largest, std::max<int64_t>(size, 1), &largest)) return std::nullopt;
  }
  return std::find(shape.begin(), shape.end(), 0) != shape.end() ? 0 : static_cast<uint64_t>(largest);
}

}  // namespace dtk
