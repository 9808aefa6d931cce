// Whole-tensor temporaries that LibTorch's CPU kernels have in common: copies of arguments in one type, and
// in a layout that the libraries of matrix products take.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace dtk::planner {

/// On the CPU the iterator behind elementwise operators first copies every argument whose type is not the
/// common one, and a result that has another type; a sum copies what it is to sum in another type.
/// Makes these copies for a call of `op`, whose arguments end `stack`: to be held until it is over.
std::vector<at::Tensor> copies_in_common_type(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

/// Likewise those of matrices whose layout their libraries do not take. None for operators other than mm,
/// addmm and bmm. Depends on this machine where oneDNN does.
std::vector<at::Tensor> copies_for_products(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace dtk::planner
