// The precision policy: forward passes under bf16 autocast.
//
// Matrix products and attention then keep 2 bytes an element instead of 4; weights, gradients, norms, losses
// and the optimizer stay fp32. LibTorch keeps the bf16 copies of the weights in a cache until somebody clears
// it; the scope of a forward pass does, and so does each recomputed segment of checkpoint.h.
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/options/precision_options.h>
#include <dtk/policies/policy.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// True if `device` is known to compute in bf16; never throws. Every CPU does; whether fast, is another
/// question. Of an accelerator first its LibTorch guard is asked (getDeviceCapability, which a simulated
/// device may override), then, for CUDA, the driver: compute capability 8.0 or more. Nothing is assumed of a
/// device of which neither knows, such as ROCm's or a simulated one without the override, nor of one that is
/// not there or computes nothing: false.
bool supports_bf16(c10::Device device);

class Precision final : public Policy {
 public:
  /// `paths`: the model's modules. Throws PolicyError when asked for on a device without bf16, when an
  /// entry of `fp32` matches no module (the default's entry may), and when asked for with all modules in
  /// `fp32`.
  Precision(const PrecisionOptions& options, c10::Device device, const std::vector<std::string>& paths);

  static constexpr char kName[] = "precision";
  std::string name() const override { return kName; }
  std::unique_ptr<PolicyScope> forward_scope() override;
  bool needs_forward_scope() const override { return active_; }
  /// Where the policy was asked for: throws PolicyError if no forward pass so far ran in its scope.
  void before_step() override;
  /// Frees the casts of the weights as they were: a scope held across the step would compute with them.
  void after_step() override;
  PolicyReport report() const override;
  bool active() const { return active_; }
  /// Whether `fp32` names the module, or one that it lies in.
  bool keeps_fp32(std::string_view path) const;

 protected:
  void put_in(Seam& seam) override;

 private:
  const c10::Device device_;
  bool asked_ = false;
  bool active_ = false;
  bool scoped_ = false;   // a forward scope began
  bool stepped_ = false;  // an optimizer step
  std::string reason_;
  std::set<std::string, std::less<>> fp32_paths_;
};

}  // namespace dtk::policies
