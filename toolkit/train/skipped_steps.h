// Steps that changed nothing, as their loss or gradient was NaN or infinite (train.on_not_finite = "skip").
// Which they are is known on the device only, until the scalars of the training are read.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace dtk {

/// A step that changed nothing: samples `first_sample` and the next of the run, in the loader's order.
struct SkippedStep {
  int64_t step = 0;
  int64_t first_sample = 0, samples = 0;
};

class SkippedSteps {
 public:
  /// Room for the flags of `between_reads` steps, 4 bytes each on the device; it doubles where more are made.
  SkippedSteps(c10::Device device, int64_t between_reads);

  /// The running step's loss: a scalar on the device. Parts of it are added to it.
  const at::Tensor& loss() const { return loss_; }

  /// Once it is known whether the running step will be skipped, a scalar on the device: takes all memory that
  /// end_step() needs.
  void prepare(const at::Tensor& skipped);
  /// At the end of a step: whether it was skipped; if it was not, its loss is added to `loss_sum`. `part`:
  /// what it counts for in the mean.
  void end_step(const SkippedStep& step, double part, const at::Tensor& skipped, const at::Tensor& loss_sum);

  /// Flags of the steps since the last time, on the device.
  at::Tensor flags() const;
  /// What they say, once they are on the host; begins anew.
  struct Read {
    std::vector<SkippedStep> skipped;
    double parts = 0;         // of those that were not
    int64_t longest_row = 0;  // of steps that were, counting on from before
  };
  Read read(const double* flags);

 private:
  struct Step {
    SkippedStep place;
    double part;
  };
  at::Tensor loss_, flags_;
  at::Tensor counted_;       // from prepare() to end_step(): the step's loss, or 0
  std::vector<Step> steps_;  // since the last read
  int64_t row_ = 0;
};

}  // namespace dtk
