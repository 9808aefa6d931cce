// The dtypes that are read from and written to files of torch.save.
#pragma once
#include <c10/core/ScalarType.h>

#include <array>
#include <string>
#include <string_view>

namespace dtk {

struct TorchType {
  std::string_view storage;  // "torch.FloatStorage": the class that stands for the dtype in a pickle
  std::string_view dtype;    // "torch.float32"
  c10::ScalarType type;
};

inline constexpr std::array<TorchType, 10> torch_types = {{
    {"torch.DoubleStorage", "torch.float64", c10::ScalarType::Double},
    {"torch.FloatStorage", "torch.float32", c10::ScalarType::Float},
    {"torch.HalfStorage", "torch.float16", c10::ScalarType::Half},
    {"torch.BFloat16Storage", "torch.bfloat16", c10::ScalarType::BFloat16},
    {"torch.LongStorage", "torch.int64", c10::ScalarType::Long},
    {"torch.IntStorage", "torch.int32", c10::ScalarType::Int},
    {"torch.ShortStorage", "torch.int16", c10::ScalarType::Short},
    {"torch.CharStorage", "torch.int8", c10::ScalarType::Char},
    {"torch.ByteStorage", "torch.uint8", c10::ScalarType::Byte},
    {"torch.BoolStorage", "torch.bool", c10::ScalarType::Bool},
}};
inline constexpr std::string_view torch_type_names =
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool";

/// "float32"
inline std::string dtype_name(c10::ScalarType type) {
  if (type == c10::ScalarType::UInt32)
    return "uint32";  // of NumPy's files: torch.save's old storages have none
  for (const TorchType& known : torch_types) {
    if (known.type == type) return std::string(known.dtype.substr(known.dtype.find('.') + 1));
  }
  return c10::toString(type);
}

}  // namespace dtk
