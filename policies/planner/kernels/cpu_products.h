// Copies that matrix products make on the CPU of matrices whose layout their libraries do not take.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace dtk::planner {

/// Makes the copies for a call of `op`, whose arguments end `stack`: to be held until it is over. None for
/// operators other than mm, addmm and bmm. Depends on this machine where oneDNN does.
std::vector<at::Tensor> copies_for_products(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace dtk::planner
