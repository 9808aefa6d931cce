// Results that kernels of the CPU and of a device make alike.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace dtk::planner {

using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Mask = std::array<bool, 3>;  // which gradients are wanted

/// An empty tensor on the device of `like`.
at::Tensor make(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type);

/// What a CPU kernel makes for itself and frees: as make(), and undefined where the call's scratch is
/// measured.
at::Tensor make_scratch(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type);

/// An empty (N, H, T, width) whose memory is (N, T, H, width), for `like` of (N, H, T, D).
at::Tensor by_rows(const at::Tensor& like, int64_t width);

/// The normalised tensor and two statistics of `type` over the last dimensions, as many as `normalized` has.
Three layer_norm_results(const at::Tensor& x, at::IntArrayRef normalized, at::ScalarType type);
/// Of x, weight and bias, those that `mask` wants.
Three layer_norm_gradients(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                           Mask mask);

/// What an element-wise loss makes (Loss.cpp). Its shape function makes the result as large as all the terms,
/// and of a reduced loss a scalar in that storage; its kernel then makes the terms once more, to reduce them.
struct LossTensors {
  at::Tensor result;
  at::Tensor terms;  // the kernel's scratch; undefined without a reduction
};
LossTensors loss_tensors(const at::Tensor& a, const at::Tensor& b, int64_t reduction);

}  // namespace dtk::planner
