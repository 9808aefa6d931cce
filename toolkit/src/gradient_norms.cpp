#include "gradient_norms.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <utility>

namespace dtk {
namespace {

// The CPU's kernel takes a whole norm on one thread, so the threads share parts of a gradient out. Of one
// size whatever the number of threads: so the bits are the same.
constexpr int64_t kPart = int64_t{1} << 18;

size_t parts_of(const at::Tensor& parameter) {
  return static_cast<size_t>(std::max<int64_t>(1, (parameter.numel() + kPart - 1) / kPart));
}

// As it lies in memory.
at::Tensor flat(const at::Tensor& gradient) {
  return gradient.is_non_overlapping_and_dense() ? gradient.as_strided({gradient.numel()}, {1})
                                                 : gradient.reshape({-1});
}

}  // namespace

GradientNorms::GradientNorms(const std::vector<at::Tensor>& parameters) {
  if (!parameters.front().is_cpu()) return;
  size_t parts = 0;
  for (const at::Tensor& parameter : parameters) {
    parameters_.push_back({parameter, parts, parts_of(parameter), 0, std::nullopt});
    parts += parameters_.back().parts;
  }
  norms_ = at::empty({static_cast<int64_t>(parts)}, at::TensorOptions().dtype(at::kFloat));
  each_ = norms_.unbind();
  for (Parameter& parameter : parameters_) {
    parameter.hook = parameter.tensor.register_hook([this, &parameter](const at::Tensor& gradient) {
      // With more to come, or another dtype to come to, it is not what the step will see.
      if (parameter.tensor.grad().defined() || gradient.scalar_type() != at::kFloat) return;
      take(parameter, gradient);
    });
  }
}

GradientNorms::~GradientNorms() {
  for (const Parameter& parameter : parameters_) parameter.tensor.remove_hook(parameter.hook);
}

void GradientNorms::take(Parameter& parameter, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = flat(gradient);
  const at::ThreadLocalState caller;  // grad mode, and whether anything is computed at all
  const auto parts = static_cast<int64_t>(parameter.parts);
  at::parallel_for(0, parts, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    const at::ThreadLocalStateGuard as_caller(caller);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * kPart;
      at::Tensor norm = each_[parameter.first_part + static_cast<size_t>(i)];
      at::linalg_vector_norm_out(norm, values.narrow(0, first, std::min(kPart, values.numel() - first)), 2);
    }
  });
  parameter.taken.emplace(Taken{gradient.storage().getWeakStorageImpl(), gradient._version()});
}

bool GradientNorms::is_taken(const Parameter& parameter, const at::Tensor& gradient) {
  return parameter.taken &&
         parameter.taken->storage._unsafe_get_target() == gradient.storage().unsafeGetStorageImpl() &&
         parameter.taken->version == gradient._version();
}

at::Tensor GradientNorms::global(const std::vector<at::Tensor>& gradients) {
  if (!norms_.defined()) return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_taken(parameters_[i], gradients[i])) take(parameters_[i], gradients[i]);
    parameters_[i].taken.reset();
  }
  return at::linalg_vector_norm(norms_, 2);
}

}  // namespace dtk
