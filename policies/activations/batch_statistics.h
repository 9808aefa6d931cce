// Mean and inverse deviation of the batch that a batch norm saw: 2 numbers a channel, which the plain pass
// keeps for backward too. A segment keeps them, as taking them again is most of what a norm costs on the CPU.
//
// On the CPU only, in fp32 and fp64. There a norm is x * alpha + beta with two numbers a channel once its
// statistics are known, and LibTorch's kernel for known statistics gives the same bits. Those of CUDA compute
// it in another order.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <vector>

namespace dtk::policies {

/// Of one call of aten::native_batch_norm in training.
struct BatchStatistics {
  at::Tensor mean, invstd;  // (C)
  const void* weight;       // tells norms apart; null: none, or a computed one
};
using StatisticsOfCalls = std::vector<BatchStatistics>;

/// Whether the call whose arguments lie on `stack` is one whose statistics are kept: the same in forward and
/// in a recomputation.
bool keeps_statistics(const torch::jit::Stack& stack);
/// Of a call with this weight whose results lie on `stack`.
BatchStatistics statistics_of(const at::Tensor& weight, const torch::jit::Stack& stack);
/// Of the call whose arguments lie on `stack`; undefined: none.
at::Tensor weight_of_norm(const torch::jit::Stack& stack);
std::array<at::Tensor, 2> running_statistics(const torch::jit::Stack& stack);

/// Whether `known` can be of the call whose arguments lie on `stack`.
bool fit(const BatchStatistics& known, const torch::jit::Stack& stack);
/// Runs the operator on `stack` with `known` in the place of its input's statistics. Autograd makes the same
/// node; running statistics are left alone.
void normalize_by(const BatchStatistics& known, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

}  // namespace dtk::policies
