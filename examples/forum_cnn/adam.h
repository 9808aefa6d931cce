// Adam in the three forms that PyTorch has: the same update, and other temporaries. Which one takes the least
// depends on the sizes of the parameters, not on the form.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace examples {

enum class AdamForm {
  single,   // parameter by parameter: two temporaries of the parameter's size
  foreach,  // operator by operator over all parameters: one temporary of the size of all
  fused     // one kernel: none
};

/// lr 1e-4, betas 0.9 and 0.999, eps 1e-8, no decay. Moments are made at once, 8 bytes a parameter in fp32.
class Adam {
 public:
  Adam(AdamForm form, std::vector<at::Tensor> parameters);
  /// Every parameter must have a gradient. Reads no tensor's value.
  void step();

 private:
  void step_single(const std::vector<at::Tensor>& gradients);
  void step_foreach(const std::vector<at::Tensor>& gradients);
  void step_fused(const std::vector<at::Tensor>& gradients);

  const AdamForm form_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;
  std::vector<at::Tensor> counters_;  // of steps, one float a parameter: read by the fused kernel only
  int64_t steps_ = 0;
};

}  // namespace examples
