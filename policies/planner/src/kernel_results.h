// Results that kernels of the CPU and of a device make alike.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace dtk::planner {

/// An empty tensor on the device of `like`.
at::Tensor make(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type);

/// An empty (N, H, T, width) whose memory is (N, T, H, width), for `like` of (N, H, T, D).
at::Tensor by_rows(const at::Tensor& like, int64_t width);

/// The normalised tensor and two statistics of `type` over the last dimensions, as many as `normalized` has.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_results(const at::Tensor& x,
                                                                  at::IntArrayRef normalized,
                                                                  at::ScalarType type);
/// Of x, weight and bias, those that `mask` wants.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_gradients(const at::Tensor& x,
                                                                    const std::optional<at::Tensor>& weight,
                                                                    const std::optional<at::Tensor>& bias,
                                                                    std::array<bool, 3> mask);

/// The reduced loss is a scalar in the storage of all the terms: the kernel gives the tensor of the terms to
/// the reduction as its result.
at::Tensor loss_in_storage_of_terms(const at::Tensor& a, const at::Tensor& b, int64_t reduction);

}  // namespace dtk::planner
