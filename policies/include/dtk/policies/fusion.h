// The fusion policy: a training pass calls operators that do in one pass over memory what LibTorch takes
// several for, where a module has both forms and asks the seam (Seam::fuses). They keep less for backward,
// and round less often: gradients are near those of the composed form, not their bits.
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/options/fusion_options.h>
#include <dtk/policies/policy.h>
#include <dtk/policies/seam.h>

#include <memory>

namespace dtk::policies {

class FusionPolicy final : public Policy {
 public:
  /// Throws PolicyError where it was asked for on CUDA and the kernels there were not.
  FusionPolicy(const FusionOptions& options, c10::Device device);

  std::string name() const override { return "fusion"; }
  /// Throws PolicyError where the policy was asked for and no training pass so far called a fused operator.
  void before_step() override;
  /// Active until a step shows that no module asked, or that the device has no kernel.
  PolicyReport report() const override;

 protected:
  /// A module that asks for an operator which has no kernel on the device gets a PolicyError where the policy
  /// was asked for, else the composed form. Passes without gradient take the composed form.
  void put_in(Seam& seam) override;

 private:
  struct Findings;
  const FusionOptions options_;
  const c10::Device device_;
  const std::shared_ptr<Findings> findings_;
};

}  // namespace dtk::policies
