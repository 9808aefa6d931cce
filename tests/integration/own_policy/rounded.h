// A policy of a program's own: what autograd saves in fp32 waits for backward in bf16.
#pragma once
#include <dtk/policies/policy_kind.h>

#include <atomic>

namespace own {

using dtk::policies::Enabled;

struct RoundedOptions {
  Enabled enabled = Enabled::off;
  int64_t min_bytes = 1024;
  int64_t every = 1;  // rounds in each k-th optimizer step

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, min_bytes, every] = self;
    visit("enabled", enabled, "\"default\" | true | false");
    visit("min_bytes", min_bytes, "[0, inf)", "smaller tensors are left alone");
    visit("every", every, "[1, inf)");
  }
  friend bool operator==(const RoundedOptions&, const RoundedOptions&) = default;
};

class RoundedKind final : public dtk::policies::PolicyKind {
 public:
  std::string name() const override { return "rounded"; }
  std::unique_ptr<dtk::policies::OwnTable> new_options() const override {
    return std::make_unique<dtk::policies::OwnTableOf<RoundedOptions>>(name());
  }
  std::unique_ptr<dtk::policies::Policy> make(
      const dtk::policies::PolicyOptions& options, const dtk::policies::Subject& subject,
      std::unique_ptr<dtk::policies::StagingCopies>& engine) const override;
  dtk::policies::StepsOption period(dtk::policies::PolicyOptions& options) const override {
    return {"every", &options.own.of<RoundedOptions>().every};
  }
  std::string baseline(const dtk::policies::PolicyOptions&) const override {
    return "saved tensors as they are";
  }
};

}  // namespace own
