#include "integration/own_policy/rounded.h"

#include <dtk/policies/saved_tensors.h>

namespace own {
namespace {

using namespace dtk::policies;

class RoundedTensor final : public SavedTensor {
 public:
  explicit RoundedTensor(std::unique_ptr<SavedTensor> kept) : kept_(std::move(kept)) {}
  at::Tensor unpack() override { return kept_->unpack().to(at::kFloat); }

 private:
  const std::unique_ptr<SavedTensor> kept_;
};

class Layer final : public SavedTensorLayer {
 public:
  explicit Layer(int64_t min_bytes) : min_bytes_(min_bytes) {}
  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
    const bool small = static_cast<int64_t>(tensor.nbytes()) < min_bytes_;
    if (small || tensor.scalar_type() != at::kFloat || saving_weight()) return below.pack(tensor);
    rounded = true;
    return std::make_unique<RoundedTensor>(below.pack(tensor.to(at::kBFloat16)));
  }
  std::atomic<bool> rounded{false};

 private:
  const int64_t min_bytes_;
};

class Scope final : public PolicyScope {
 public:
  explicit Scope(std::shared_ptr<Layer> layer) : scope_(std::move(layer)) {}

 private:
  const SavedTensorScope scope_;
};

class Rounded final : public Policy {
 public:
  explicit Rounded(const RoundedOptions& options)
      : options_(options), layer_(std::make_shared<Layer>(options.min_bytes)) {}
  std::string name() const override { return "rounded"; }
  std::unique_ptr<PolicyScope> forward_scope() override {
    if (steps_ % options_.every != 0) return nullptr;
    return std::make_unique<Scope>(layer_);
  }
  int64_t period() const override { return options_.every; }
  void before_step() override {
    if (options_.enabled != Enabled::on || layer_->rounded) return;
    throw PolicyError("policies.rounded.min_bytes", " = " + std::to_string(options_.min_bytes) +
                                                        " is more than any saved tensor has; lower it");
  }
  void after_step() override { ++steps_; }
  PolicyReport report() const override {
    return {name(), true,
            "what is saved in fp32 waits in bf16, in each " + std::to_string(options_.every) + ". step"};
  }

 private:
  const RoundedOptions options_;
  const std::shared_ptr<Layer> layer_;
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Policy> RoundedKind::make(const PolicyOptions& options, const Subject&,
                                          std::unique_ptr<StagingCopies>&) const {
  return std::make_unique<Rounded>(options.own.of<RoundedOptions>());
}

}  // namespace own
