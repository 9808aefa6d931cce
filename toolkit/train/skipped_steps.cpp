#include "toolkit/train/skipped_steps.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

namespace dtk {

SkippedSteps::SkippedSteps(c10::Device device, int64_t between_reads)
    : loss_(at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device))),
      flags_(at::zeros({between_reads}, loss_.options())) {}

void SkippedSteps::prepare(const at::Tensor& skipped) {
  if (static_cast<int64_t>(steps_.size()) == flags_.numel())
    flags_ = at::cat({flags_, at::zeros_like(flags_)});
  counted_ = at::where(skipped.to(at::kBool), 0.0, loss_);
}

void SkippedSteps::end_step(const SkippedStep& step, double part, const at::Tensor& skipped,
                            const at::Tensor& loss_sum) {
  flags_[static_cast<int64_t>(steps_.size())].copy_(skipped);
  loss_sum.add_(counted_);
  counted_.reset();
  loss_.zero_();
  steps_.push_back({step, part});
}

at::Tensor SkippedSteps::flags() const {
  return flags_.narrow(0, 0, static_cast<int64_t>(steps_.size()));
}

SkippedSteps::Read SkippedSteps::read(const double* flags) {
  Read result;
  for (const Step& step : std::exchange(steps_, {})) {
    const bool skipped = *flags++ != 0;
    row_ = skipped ? row_ + 1 : 0;
    result.longest_row = std::max(result.longest_row, row_);
    if (skipped) result.skipped.push_back(step.place);
    if (!skipped) result.parts += step.part;
  }
  return result;
}

}  // namespace dtk
