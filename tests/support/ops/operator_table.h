// The fused operators in a table, each beside its composed form, and how far a result may be from what is
// right.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtk::test {

using Tensors = std::vector<at::Tensor>;

inline constexpr double kEps = 1e-6;

/// fp64 on the CPU, the same for a seed.
at::Tensor normal(at::IntArrayRef sizes, uint64_t seed);

struct Operator {
  const char* name;
  /// The result has the type of the first tensor, where it may have several.
  std::function<at::Tensor(const Tensors&)> fused;
  /// By LibTorch's operators, in the type and on the device that its tensors have.
  std::function<at::Tensor(const Tensors&)> composed;
  /// fp64 on the CPU, for N samples of T tokens with D channels.
  std::function<Tensors(int64_t n, int64_t t, int64_t d)> inputs;
};

const std::vector<Operator>& operators();
/// Of that name.
const Operator& operator_of(const std::string& name);

/// Layers whose input is recomputed in backward. Their composed form is of LibTorch's operators in fp64; in
/// another type it is the two steps that they stand for, the fused operator and the product.
const std::vector<Operator>& layers();

std::vector<Operator> operators_and_layers();

/// For the rotary embedding: two heads of a tensor's channels, of kParts parts of two halves each; cosine and
/// sine for x (N, T, H, d), of its type and on its device. They hold numbers that each type has.
inline constexpr int64_t kParts = 2;
at::Tensor as_heads(const at::Tensor& x);
std::pair<at::Tensor, at::Tensor> tables(const at::Tensor& x);

/// Result and gradients of inputs, for a gradient of the result that differs everywhere, and that is a number
/// of type `rounded` where one is given. Undefined for inputs that are not read.
Tensors with_gradients(const std::function<at::Tensor(const Tensors&)>& fn, const Tensors& inputs,
                       std::optional<at::ScalarType> rounded = std::nullopt);

Tensors converted(const Tensors& tensors, at::ScalarType type);

/// The largest distance from `wanted`, in its largest magnitude. `wanted` is fp64 on the CPU.
double distance(const at::Tensor& got, const at::Tensor& wanted);

/// Of a number of the type: what rounding it once takes of it at the most.
double half_ulp(at::ScalarType type);

/// The largest error of an element, in what it may have: half an ulp of its own type, as it is rounded once,
/// and what fp32's arithmetic takes of the largest terms. Up to 1 is right.
double in_roundings(const at::Tensor& got, const at::Tensor& wanted);

/// N, T, D
extern const std::vector<std::array<int64_t, 3>> kShapes;

}  // namespace dtk::test
