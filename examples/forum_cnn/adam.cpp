#include "forum_cnn/adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <dtk/policies/memory_ledger.h>

#include <cmath>
#include <utility>

namespace examples {
namespace {

using namespace dtk::policies;

constexpr double kRate = 1e-4, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

struct Correction {
  explicit Correction(int64_t steps)
      : rate(kRate / (1 - std::pow(kBeta1, static_cast<double>(steps)))),
        root(std::sqrt(1 - std::pow(kBeta2, static_cast<double>(steps)))) {}
  const double rate, root;
};

}  // namespace

Adam::Adam(AdamForm form, std::vector<at::Tensor> parameters)
    : form_(form), parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    {
      const OwnerScope owner(Category::optimizer, "exp_avg");
      exp_avg_.push_back(at::zeros_like(parameter));
    }
    const OwnerScope owner(Category::optimizer, "exp_avg_sq");
    exp_avg_sq_.push_back(at::zeros_like(parameter));
  }
  const OwnerScope owner(Category::optimizer, "steps");
  for (const at::Tensor& parameter : parameters_) {
    counters_.push_back(at::zeros({}, parameter.options()));
  }
}

void Adam::step() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  ++steps_;
  at::_foreach_add_(counters_, 1);
  switch (form_) {
    case AdamForm::single:
      return step_single(gradients);
    case AdamForm::foreach:
      return step_foreach(gradients);
    case AdamForm::fused:
      return step_fused(gradients);
  }
}

void Adam::step_single(const std::vector<at::Tensor>& gradients) {
  const Correction correction(steps_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    exp_avg_[i].lerp_(gradient, 1 - kBeta1);
    exp_avg_sq_[i].mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
    const at::Tensor divisor = exp_avg_sq_[i].sqrt().div(correction.root).add_(kEpsilon);
    parameters_[i].addcdiv_(exp_avg_[i], divisor, -correction.rate);
  }
}

void Adam::step_foreach(const std::vector<at::Tensor>& gradients) {
  const Correction correction(steps_);
  at::_foreach_lerp_(exp_avg_, gradients, 1 - kBeta1);
  at::_foreach_mul_(exp_avg_sq_, kBeta2);
  at::_foreach_addcmul_(exp_avg_sq_, gradients, gradients, 1 - kBeta2);
  const std::vector<at::Tensor> divisors = at::_foreach_sqrt(exp_avg_sq_);
  at::_foreach_div_(divisors, correction.root);
  at::_foreach_add_(divisors, kEpsilon);
  at::_foreach_addcdiv_(parameters_, exp_avg_, divisors, -correction.rate);
}

// AdamW without decay is Adam.
void Adam::step_fused(const std::vector<at::Tensor>& gradients) {
  at::_fused_adamw_(parameters_, gradients, exp_avg_, exp_avg_sq_, /*max_exp_avg_sqs=*/{}, counters_, kRate,
                    kBeta1, kBeta2, /*weight_decay=*/0.0, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace examples
