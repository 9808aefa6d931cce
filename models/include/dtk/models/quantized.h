// Frozen weights in 4 or 8 bits, in the layouts of bitsandbytes.
//
// NF4 (Dettmers et al., 2023): blocks of 64 values, row by row, each value one of 16 times the block's
// largest magnitude; with double quantisation those magnitudes, less their mean, are 8 bits each, in blocks
// of 256. int8: each row on its own, in steps of its largest magnitude over 127.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtk::models {

/// In what a frozen weight is held: 4 bits of NF4, or 8 of int8.
enum class Packing { nf4, int8 };
constexpr auto enum_texts(Packing) {
  return std::array{"nf4", "int8"};
}

/// A weight (out, in). B = out·in / 64, rounded up.
struct PackedWeight {
  Packing packing = Packing::nf4;
  int64_t out = 0, in = 0;
  at::Tensor
      codes;  // nf4: (out·in / 2 rounded up, 1) uint8, the first of two in the upper bits; int8: (out, in)
  at::Tensor absmax;         // nf4: (B) uint8 of the nested map, or fp32; int8: (out) fp32
  at::Tensor nested_absmax;  // (B / 256, rounded up) fp32; undefined: absmax is fp32 itself
  at::Tensor nested_offset;  // () fp32

  /// The tensors that there are, under bitsandbytes' names behind that of the weight: "", ".absmax",
  /// ".nested_absmax", ".nested_offset", or for int8 "" and ".SCB".
  std::vector<std::pair<std::string, at::Tensor>> tensors() const;
};

/// Not filled.
PackedWeight empty_packed(Packing packing, int64_t out, int64_t in, bool double_quant, c10::Device device);

/// Packs a weight (out, in) of any floating type on the CPU; the result is on the CPU, and equal to what
/// bitsandbytes' quantize_4bit(quant_type = "nf4", blocksize = 64) and int8_vectorwise_quant() make of it.
/// Beside the result it takes, in fp32, a row (int8), or 262,144 values and the magnitudes (nf4). Throws
/// c10::Error for another number of dimensions, device or kind of type.
PackedWeight packed(const at::Tensor& weight, Packing packing, bool double_quant);

/// (out, in) in `type`. Beside the result it takes nothing on the CPU, and on CUDA some 20 bytes for each of
/// 4,194,304 values at once (nf4), or 8 (int8). Throws c10::Error for tensors that are not those of a weight
/// (out, in), or a type that is not floating.
at::Tensor unpacked(const PackedWeight& weight, at::ScalarType type);

/// x (..., in) times weightᵀ, in x's type or autocast's. The weight is unpacked for the product and freed
/// after it, in forward and again in backward, which keeps neither it nor x. Throws as unpacked(), and for
/// an x of another width.
at::Tensor packed_linear(const at::Tensor& x, const PackedWeight& weight);

/// The 16 values of NF4, and the 256 of the magnitudes (fp32, on the CPU).
const std::vector<float>& nf4_values();
const std::vector<float>& nested_values();

}  // namespace dtk::models
