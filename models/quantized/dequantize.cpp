// The operators dtk::dequantize_nf4 and dtk::dequantize_int8: on the CPU, on CUDA by LibTorch's own operators
// a few rows at a time, and, where nothing is computed, their shapes. They take no scratch on the CPU.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/models/quantized.h>
#include <torch/library.h>

#include <algorithm>

#include "quantized/blocks.h"

namespace dtk::models {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor empty_weight(const at::Tensor& codes, int64_t out, int64_t in, at::ScalarType type) {
  return at::empty({out, in}, codes.options().dtype(type));
}

// The kernels read as many values as these have, as they lie.
void check_part(const char* name, const at::Tensor& part, at::ScalarType type, int64_t count) {
  TORCH_CHECK(part.scalar_type() == type && part.numel() == count && part.is_contiguous(), name, " is ",
              part.scalar_type(), " ", part.sizes(), " strides ", part.strides(), "; allowed: ", count,
              " values in ", type, ", contiguous");
}

void check_nf4(const at::Tensor& codes, const at::Tensor& absmax, const OptionalTensor& nested,
               const OptionalTensor& offset, int64_t out, int64_t in) {
  TORCH_CHECK(out >= 0 && in >= 0, "dtk::dequantize_nf4: a weight of ", out, " times ", in, " values");
  const int64_t blocks = blocks_of(out * in);
  const bool is_nested = nested && nested->defined();
  check_part("dtk::dequantize_nf4: codes", codes, at::kByte, (out * in + 1) / 2);
  check_part("dtk::dequantize_nf4: absmax", absmax, is_nested ? at::kByte : at::kFloat, blocks);
  if (!is_nested) return;
  check_part("dtk::dequantize_nf4: nested_absmax", *nested, at::kFloat,
             (blocks + kNestedBlock - 1) / kNestedBlock);
  TORCH_CHECK(offset && offset->defined(), "dtk::dequantize_nf4: nested_absmax without nested_offset");
  check_part("dtk::dequantize_nf4: nested_offset", *offset, at::kFloat, 1);
}

void check_int8(const at::Tensor& codes, const at::Tensor& absmax) {
  TORCH_CHECK(codes.dim() == 2, "dtk::dequantize_int8: codes have sizes ", codes.sizes(),
              "; allowed: (out, in)");
  check_part("dtk::dequantize_int8: codes", codes, at::kChar, codes.numel());
  check_part("dtk::dequantize_int8: absmax", absmax, at::kFloat, codes.size(0));
}

at::Tensor nf4_shape(const at::Tensor& codes, const at::Tensor& absmax, const OptionalTensor& nested,
                     const OptionalTensor& offset, int64_t out, int64_t in, at::ScalarType type) {
  check_nf4(codes, absmax, nested, offset, out, in);
  return empty_weight(codes, out, in, type);
}

at::Tensor int8_shape(const at::Tensor& codes, const at::Tensor& absmax, at::ScalarType type) {
  check_int8(codes, absmax);
  return empty_weight(codes, codes.size(0), codes.size(1), type);
}

// Magnitude of a block.
struct Magnitudes {
  const float* plain = nullptr;
  const uint8_t* codes = nullptr;
  const float *nested = nullptr, *map = nullptr;
  float offset = 0;
  float operator[](int64_t block) const {
    return plain != nullptr ? plain[block] : map[codes[block]] * nested[block / kNestedBlock] + offset;
  }
};

Magnitudes magnitudes_of(const at::Tensor& absmax, const OptionalTensor& nested,
                         const OptionalTensor& offset) {
  if (!nested || !nested->defined()) return {.plain = absmax.const_data_ptr<float>()};
  return {.codes = absmax.const_data_ptr<uint8_t>(),
          .nested = nested->const_data_ptr<float>(),
          .map = nested_values().data(),
          .offset = *offset->const_data_ptr<float>()};
}

template <class Value>
void fill_nf4(const uint8_t* codes, const Magnitudes& magnitudes, int64_t count, Value* values) {
  const float* const table = nf4_values().data();
  constexpr int64_t kGrain = 256;  // blocks
  at::parallel_for(0, blocks_of(count), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const float magnitude = magnitudes[block];
      const int64_t last = std::min(count, (block + 1) * kBlock);
      for (int64_t i = block * kBlock; i < last; ++i) {
        const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
        values[i] = static_cast<Value>(table[code] * magnitude);
      }
    }
  });
}

at::Tensor nf4_on_cpu(const at::Tensor& codes, const at::Tensor& absmax, const OptionalTensor& nested,
                      const OptionalTensor& offset, int64_t out, int64_t in, at::ScalarType type) {
  at::Tensor weight = nf4_shape(codes, absmax, nested, offset, out, in, type);
  const Magnitudes magnitudes = magnitudes_of(absmax, nested, offset);
  const uint8_t* const from = codes.const_data_ptr<uint8_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, type, "dequantize_nf4", [&] {
    fill_nf4(from, magnitudes, out * in, weight.mutable_data_ptr<scalar_t>());
  });
  return weight;
}

at::Tensor int8_on_cpu(const at::Tensor& codes, const at::Tensor& absmax, at::ScalarType type) {
  at::Tensor weight = int8_shape(codes, absmax, type);
  const int8_t* const from = codes.const_data_ptr<int8_t>();
  const float* const magnitudes = absmax.const_data_ptr<float>();
  const int64_t in = codes.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, type, "dequantize_int8", [&] {
    scalar_t* const values = weight.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, codes.size(0), /*grain_size=*/16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * in; i < end * in; ++i) {
        constexpr float kStep = 1.0F / 127;
        values[i] = static_cast<scalar_t>(static_cast<float>(from[i]) * magnitudes[i / in] * kStep);
      }
    });
  });
  return weight;
}

// A part at a time, so that what lies beside the result stays small: some 20 bytes a value.
constexpr int64_t kValuesAtOnce = 1 << 22;

at::Tensor table_on(const std::vector<float>& values, const at::Tensor& like) {
  return at::tensor(values, at::kFloat).to(like.device());
}

at::Tensor nf4_by_operators(const at::Tensor& codes, const at::Tensor& absmax, const OptionalTensor& nested,
                            const OptionalTensor& offset, int64_t out, int64_t in, at::ScalarType type) {
  at::Tensor weight = nf4_shape(codes, absmax, nested, offset, out, in, type);
  const at::Tensor table = table_on(nf4_values(), codes);
  at::Tensor magnitudes = absmax;
  if (nested && nested->defined()) {
    magnitudes = table_on(nested_values(), codes).index_select(0, absmax.to(at::kInt));
    at::Tensor of_blocks = nested->repeat_interleave(kNestedBlock).narrow(0, 0, magnitudes.size(0));
    magnitudes = magnitudes * of_blocks + *offset;
  }
  const at::Tensor flat = weight.view({-1}), bytes = codes.view({-1});
  for (int64_t first = 0; first < flat.numel(); first += kValuesAtOnce) {
    const int64_t count = std::min(kValuesAtOnce, flat.numel() - first), pairs = (count + 1) / 2;
    const at::Tensor part = bytes.narrow(0, first / 2, pairs);
    at::Tensor both = at::stack({part.bitwise_right_shift(4), part.bitwise_and(15)}, 1).view({-1});
    at::Tensor values = table.index_select(0, both.to(at::kInt)).narrow(0, 0, count);
    both.reset();
    const at::Tensor of_blocks = magnitudes.narrow(0, first / kBlock, blocks_of(count));
    values = values * of_blocks.repeat_interleave(kBlock).narrow(0, 0, count);
    flat.narrow(0, first, count).copy_(values);
  }
  return weight;
}

at::Tensor int8_by_operators(const at::Tensor& codes, const at::Tensor& absmax, at::ScalarType type) {
  at::Tensor weight = int8_shape(codes, absmax, type);
  const int64_t at_once = std::max<int64_t>(1, kValuesAtOnce / codes.size(1));
  for (int64_t first = 0; first < codes.size(0); first += at_once) {
    const int64_t count = std::min(at_once, codes.size(0) - first);
    at::Tensor values = codes.narrow(0, first, count).to(at::kFloat);
    values = values * absmax.narrow(0, first, count).unsqueeze(1) * (1.0 / 127);
    weight.narrow(0, first, count).copy_(values);
  }
  return weight;
}

TORCH_LIBRARY(dtk, library) {
  library.def(
      "dequantize_nf4(Tensor codes, Tensor absmax, Tensor? nested_absmax, Tensor? nested_offset, int out, "
      "int in_, ScalarType type) -> Tensor");
  library.def("dequantize_int8(Tensor codes, Tensor absmax, ScalarType type) -> Tensor");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("dequantize_nf4", &nf4_on_cpu);
  library.impl("dequantize_int8", &int8_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, CUDA, library) {
  library.impl("dequantize_nf4", &nf4_by_operators);
  library.impl("dequantize_int8", &int8_by_operators);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("dequantize_nf4", &nf4_shape);
  library.impl("dequantize_int8", &int8_shape);
}

}  // namespace

at::Tensor unpacked(const PackedWeight& weight, at::ScalarType type) {
  const auto of = [](const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); };
  if (weight.packing == Packing::int8) {
    static const auto op = of("dtk::dequantize_int8").typed<decltype(int8_shape)>();
    return op.call(weight.codes, weight.absmax, type);
  }
  static const auto op = of("dtk::dequantize_nf4").typed<decltype(nf4_shape)>();
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return op.call(weight.codes, weight.absmax, optional(weight.nested_absmax), optional(weight.nested_offset),
                 weight.out, weight.in, type);
}

}  // namespace dtk::models
