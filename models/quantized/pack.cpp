#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/models/quantized.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "quantized/blocks.h"

namespace dtk::models {
namespace {

// Between two values, so that the index of a value is the number of bounds below it.
std::array<float, 15> bounds_of_nf4() {
  std::array<float, 15> bounds{};
  for (size_t i = 0; i < bounds.size(); ++i) bounds.at(i) = (nf4_values()[i] + nf4_values()[i + 1]) / 2;
  return bounds;
}

float largest_magnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

// The codes of one block, whose magnitude is returned. The last block of a weight may be short, and is
// divided where whole ones are multiplied, as bitsandbytes does it.
float pack_block(const float* values, int64_t count, const std::array<float, 15>& bounds, uint8_t* codes) {
  constexpr float kMinMagnitude = 1e-38F;
  const float largest = largest_magnitude(values, count);
  const bool whole = count == kBlock;
  const float inverse = 1.0F / std::max(largest, kMinMagnitude);
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = whole ? values[i] * inverse : values[i] / std::max(largest, kMinMagnitude);
    const float value = std::clamp(scaled, -1.0F, 1.0F);
    const auto code =
        static_cast<uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
    codes[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? code << 4 : codes[i / 2] | code);
  }
  if (count % 2 != 0) codes[count / 2] |= 7;  // of a 0 behind the end
  return whole ? largest : std::max(largest, kMinMagnitude);
}

// The nearest of the nested map; between two, the lower.
uint8_t nearest_nested(float value) {
  const std::vector<float>& map = nested_values();
  const auto above = std::upper_bound(map.begin(), map.end(), value);
  const int64_t left = std::max<int64_t>(0, above - map.begin() - 1);
  if (left == std::ssize(map) - 1) return static_cast<uint8_t>(left);
  const float to_left = std::fabs(value - map[static_cast<size_t>(left)]);
  const float to_right = std::fabs(value - map[static_cast<size_t>(left) + 1]);
  return static_cast<uint8_t>(to_right < to_left ? left + 1 : left);
}

void nest(const at::Tensor& magnitudes, PackedWeight& into) {
  const at::Tensor offset = magnitudes.mean();
  into.nested_offset.copy_(offset);
  const at::Tensor centred = magnitudes - offset;
  const float* const values = centred.const_data_ptr<float>();
  uint8_t* const codes = into.absmax.mutable_data_ptr<uint8_t>();
  float* const nested = into.nested_absmax.mutable_data_ptr<float>();
  for (int64_t first = 0; first < centred.numel(); first += kNestedBlock) {
    const int64_t count = std::min(kNestedBlock, centred.numel() - first);
    const float largest = nested[first / kNestedBlock] = largest_magnitude(values + first, count);
    for (int64_t i = first; i < first + count; ++i) codes[i] = nearest_nested(values[i] / largest);
  }
}

// Blocks run on from row to row; a part of so many rows is a whole number of bytes and blocks.
void pack_nf4(const at::Tensor& weight, PackedWeight& into) {
  const std::array<float, 15> bounds = bounds_of_nf4();
  const at::Tensor flat = weight.reshape({-1});
  const int64_t blocks = blocks_of(flat.numel());
  at::Tensor magnitudes = at::empty({blocks}, at::kFloat);
  float* const largest = magnitudes.mutable_data_ptr<float>();
  uint8_t* const codes = into.codes.mutable_data_ptr<uint8_t>();
  constexpr int64_t kAtOnce = 1 << 12;  // blocks
  for (int64_t part = 0; part < blocks; part += kAtOnce) {
    const int64_t first = part * kBlock, count = std::min(kAtOnce * kBlock, flat.numel() - first);
    const at::Tensor values = flat.narrow(0, first, count).to(at::kFloat).contiguous();
    const float* const from = values.const_data_ptr<float>();
    at::parallel_for(0, blocks_of(count), /*grain_size=*/64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t size = std::min(kBlock, count - i * kBlock);
        largest[part + i] = pack_block(from + i * kBlock, size, bounds, codes + (first + i * kBlock) / 2);
      }
    });
  }
  if (into.nested_absmax.defined()) {
    nest(magnitudes, into);
  } else {
    into.absmax.copy_(magnitudes);
  }
}

void pack_int8(const at::Tensor& weight, PackedWeight& into) {
  int8_t* const codes = into.codes.mutable_data_ptr<int8_t>();
  float* const largest = into.absmax.mutable_data_ptr<float>();
  for (int64_t row = 0; row < into.out; ++row) {
    const at::Tensor values = weight.select(0, row).to(at::kFloat).contiguous();
    const float* const from = values.const_data_ptr<float>();
    largest[row] = largest_magnitude(from, into.in);
    const float factor = 127.0F / largest[row];
    for (int64_t i = 0; i < into.in; ++i)
      codes[row * into.in + i] =
          largest[row] == 0 ? 0 : static_cast<int8_t>(std::nearbyint(from[i] * factor));
  }
}

// `count` numbers from 0.1 to 1 with the bits of torch.linspace.
float evenly(int64_t i, int64_t count) {
  constexpr float first = 0.1F, last = 1.0F;
  const float step = (last - first) / static_cast<float>(count - 1);
  return i < count / 2 ? std::fma(step, static_cast<float>(i), first)
                       : std::fma(-step, static_cast<float>(count - 1 - i), last);
}

// Values of 8 bits, of which the upper tell how many are left for the lower (Dettmers, 2015). Without
// LibTorch's operators, which compute nothing in a plan.
std::vector<float> dynamic_map() {
  constexpr int kExponents = 7;
  std::vector<float> values;
  for (int i = 0; i < kExponents; ++i) {
    const int64_t count = (int64_t{1} << i) + 1;
    const auto power = static_cast<float>(std::pow(10.0, i - (kExponents - 1)));
    for (int64_t k = 0; k + 1 < count; ++k) {
      const float value = (evenly(k, count) + evenly(k + 1, count)) / 2 * power;
      values.push_back(value);
      values.push_back(-value);
    }
  }
  values.push_back(0);
  values.push_back(1);
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

const std::vector<float>& nf4_values() {
  static const std::vector<float> values{-1.0F,
                                         -0.6961928009986877F,
                                         -0.5250730514526367F,
                                         -0.39491748809814453F,
                                         -0.28444138169288635F,
                                         -0.18477343022823334F,
                                         -0.09105003625154495F,
                                         0.0F,
                                         0.07958029955625534F,
                                         0.16093020141124725F,
                                         0.24611230194568634F,
                                         0.33791524171829224F,
                                         0.44070982933044434F,
                                         0.5626170039176941F,
                                         0.7229568362236023F,
                                         1.0F};
  return values;
}

const std::vector<float>& nested_values() {
  static const std::vector<float> values = dynamic_map();
  return values;
}

PackedWeight empty_packed(Packing packing, int64_t out, int64_t in, bool double_quant, c10::Device device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device), fp32 = bytes.dtype(at::kFloat);
  PackedWeight weight{packing, out, in, {}, {}, {}, {}};
  if (packing == Packing::int8) {
    weight.codes = at::empty({out, in}, bytes.dtype(at::kChar));
    weight.absmax = at::empty({out}, fp32);
    return weight;
  }
  const int64_t blocks = blocks_of(out * in);
  weight.codes = at::empty({(out * in + 1) / 2, 1}, bytes);
  weight.absmax = at::empty({blocks}, double_quant ? bytes : fp32);
  if (!double_quant) return weight;
  weight.nested_absmax = at::empty({(blocks + kNestedBlock - 1) / kNestedBlock}, fp32);
  weight.nested_offset = at::empty({}, fp32);
  return weight;
}

PackedWeight packed(const at::Tensor& weight, Packing packing, bool double_quant) {
  TORCH_CHECK(weight.dim() == 2 && weight.is_cpu() && weight.is_floating_point(), "packed: the weight is ",
              weight.scalar_type(), " ", weight.sizes(), " on ", weight.device(),
              "; allowed: (out, in) of a floating type on the CPU");
  PackedWeight into = empty_packed(packing, weight.size(0), weight.size(1), double_quant, at::kCPU);
  if (packing == Packing::int8) {
    pack_int8(weight, into);
  } else {
    pack_nf4(weight, into);
  }
  return into;
}

std::vector<std::pair<std::string, at::Tensor>> PackedWeight::tensors() const {
  if (packing == Packing::int8) return {{"", codes}, {".SCB", absmax}};
  std::vector<std::pair<std::string, at::Tensor>> list{{"", codes}, {".absmax", absmax}};
  if (nested_absmax.defined()) {
    list.emplace_back(".nested_absmax", nested_absmax);
    list.emplace_back(".nested_offset", nested_offset);
  }
  return list;
}

}  // namespace dtk::models
