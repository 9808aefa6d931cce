#include "toolkit/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <dtk/policies/memory_ledger.h>

#include <map>
#include <stdexcept>

#include "toolkit/core/errors.h"

namespace dtk {

using policies::Category;
using policies::OwnerScope;

namespace {

// The L2 norm of each of P tensors of one dtype, as (P). The CPU's kernel takes a whole norm on one thread
// and waits for memory, so the threads share the tensors out: the bits are the same for any number of
// threads.
at::Tensor norms_of(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  if (!first.is_cpu()) return at::stack(at::_foreach_norm(tensors, 2));
  const at::Tensor norms = at::empty({static_cast<int64_t>(tensors.size())}, first.options());
  const std::vector<at::Tensor> each = norms.unbind();
  const at::ThreadLocalState caller;  // grad mode, and whether anything is computed at all
  at::parallel_for(0, norms.numel(), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    const at::ThreadLocalStateGuard as_caller(caller);
    for (int64_t i = begin; i < end; ++i) {
      at::Tensor norm = each[static_cast<size_t>(i)];
      at::linalg_vector_norm_out(norm, tensors[static_cast<size_t>(i)], 2);
    }
  });
  return norms;
}

}  // namespace

AdamW::AdamW(const OptimizerOptions& options,
             const std::vector<std::pair<std::string, at::Tensor>>& parameters, NotFinite on_not_finite)
    : options_(options), on_not_finite_(on_not_finite) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    names_.push_back(name);
    parameters_.push_back(parameter);
    OwnerScope owner(Category::optimizer, "exp_avg");
    exp_avg_.push_back(at::zeros_like(parameter, at::kFloat));
    OwnerScope second(Category::optimizer, "exp_avg_sq");
    exp_avg_sq_.push_back(at::zeros_like(parameter, at::kFloat));
  }
  if (parameters_.empty()) throw std::invalid_argument("AdamW: no parameter needs a gradient");
  OwnerScope owner(Category::optimizer, "scalars");
  const auto scalar = at::TensorOptions().dtype(at::kFloat).device(parameters_.front().device());
  step_ = at::zeros({}, scalar);
  gradient_norm_ = at::zeros({}, scalar);
  stopped_ = at::zeros({}, scalar);
}

std::vector<std::string> AdamW::without_gradient() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) names.push_back(names_[i]);
  }
  return names;
}

std::vector<at::Tensor> AdamW::gradients() const {
  const std::vector<std::string> missed = without_gradient();
  if (!missed.empty())
    throw std::logic_error("AdamW: parameter " + missed.front() + " got no gradient in this step");
  std::vector<at::Tensor> result;
  result.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) result.push_back(parameter.grad());
  return result;
}

void AdamW::prepare(bool measured, const at::Tensor& loss) {
  at::NoGradGuard no_grad;
  divisor_.reset();
  std::vector<at::Tensor> grads = gradients();
  if (measured || skips() || options_.clip > 0) {
    measure(grads, loss);
    if (options_.clip > 0) divisor_ = ((gradient_norm_ + 1e-6) / options_.clip).clamp_min_(1.0);
  } else {
    looks_back_ = true;
  }
  counts_ = 1 - stopped_;
  gradients_ = std::move(grads);
}

void AdamW::apply(double lr) {
  at::NoGradGuard no_grad;
  step_.add_(counts_);
  counts_.reset();
  const std::vector<at::Tensor> steps(parameters_.size(), step_);
  at::_fused_adamw_(parameters_, gradients_, exp_avg_, exp_avg_sq_, {}, steps, lr, options_.beta1,
                    options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false,
                    /*maximize=*/false, divisor_, stopped_);
  gradients_.clear();
  divisor_.reset();
}

void AdamW::measure(const std::vector<at::Tensor>& gradients, const at::Tensor& loss) {
  if (!skips()) {
    gradient_norm_.copy_(at::linalg_vector_norm(norms_of(gradients), 2));
    stop_unless_finite(gradient_norm_);
    return;
  }
  const at::Tensor norm = at::linalg_vector_norm(norms_of(gradients), 2);
  stopped_.zero_();
  stop_unless_finite(norm);
  if (loss.defined()) stop_unless_finite(loss);
  gradient_norm_.copy_(at::where(stopped_.to(at::kBool), gradient_norm_, norm));
}

void AdamW::look_back() {
  if (!looks_back_) return;
  at::NoGradGuard no_grad;
  stop_unless_finite(at::linalg_vector_norm(norms_of(exp_avg_), 2));
  looks_back_ = false;
}

void AdamW::stop_unless_finite(const at::Tensor& norm) {
  stopped_.copy_(stopped_.logical_or(norm.isfinite().logical_not()));
}

void AdamW::release_gradients() {
  gradients_.clear();
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

std::vector<NamedTensor> AdamW::state() const {
  std::vector<NamedTensor> state;
  for (size_t i = 0; i < names_.size(); ++i) {
    state.push_back({"exp_avg." + names_[i], exp_avg_[i]});
    state.push_back({"exp_avg_sq." + names_[i], exp_avg_sq_[i]});
  }
  state.push_back({"step", step_});
  return state;
}

void AdamW::restore(const std::vector<StoredTensor>& state) {
  copy_by_name(state, this->state(), "optimizer state");
}

}  // namespace dtk
