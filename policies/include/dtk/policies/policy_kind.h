// What a set of policies knows of each, and a plan of a job: whoever walks these names none of them.
//
// A program has a policy of its own with its options, a PolicyKind, and a line before the first PolicyOptions
// is made:
//
//   struct RoundedOptions { Enabled enabled; int64_t bits = 8; ... fields ... };   // as EmaOptions
//   class Rounded final : public Policy { ... };
//   class RoundedKind final : public PolicyKind { ... };
//   const RoundedKind kind;
//   int main() { register_policy(kind); ... }
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/options/policy_options.h>
#include <dtk/policies/policy.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtk::policies {

class Shards;
class StagingCopies;

/// What policies are put into.
struct Subject {
  c10::Device device = c10::kCPU;  // where it is
  NamedTensors parameters;
  std::vector<std::string> paths;  // the modules that run through the seam, in order of execution
  bool training = true;            // else passes without gradient and step
  Shards* shards =
      nullptr;  // of several ranks that train together; outlives policies, seam and backward passes
};

/// An option that is a number of optimizer steps.
struct StepsOption {
  std::string key;  // of its policy: "every"
  int64_t* steps = nullptr;
};

/// Another value of an option, whose peak only a trial step can tell from the one that is set.
struct OtherSetting {
  PolicyOptions options;   // with it
  std::string now, other;  // "segment = 4", "segment = 1"
  std::string results =
      {};  // how far they are from those with `now`, of a pass without gradient: "same bits"
};

class PolicyKind {
 public:
  virtual ~PolicyKind() = default;
  /// As in [policies.<name>]: a bare TOML key.
  virtual std::string name() const = 0;
  /// Its table in PolicyOptions::own, at its defaults: std::make_unique<OwnTableOf<Options>>(name()).
  virtual std::unique_ptr<OwnTable> new_options() const = 0;
  /// The policy, of this name, for options that do not switch it off. `engine`: as PolicySet was given it,
  /// for the first that takes it. Throws PolicyError if it was asked for and cannot act.
  virtual std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                                       std::unique_ptr<StagingCopies>& engine) const = 0;
  /// True if it is made where it is switched off, too, as the baseline is its work as well.
  virtual bool acts_switched_off() const { return false; }
  /// Whether it has a use in steps, or in passes of inference only.
  virtual bool acts_in_training() const { return true; }
  /// Whether it has a use where one rank trains alone.
  virtual bool acts_alone() const { return true; }
  /// Whether it has a use in a pass without gradient and step, such as a sampler's.
  virtual bool acts_without_gradient() const { return false; }
  /// Whether it has a use in forward and backward passes that no optimizer step follows.
  virtual bool acts_without_step() const { return true; }
  /// Whether backward passes recompute what modules would save for them.
  virtual bool recomputes() const { return false; }
  /// The option that says after how many steps Policy::period() its work repeats; a plan makes it shorter.
  virtual StepsOption period(PolicyOptions&) const { return {}; }
  /// Each of its parts that can be left out by itself, left out: of a policy that acts without gradient.
  virtual std::vector<OtherSetting> parts_left_out(const PolicyOptions&) const { return {}; }
  /// Measured beside the policy's saving, where there is one.
  virtual std::optional<OtherSetting> other_setting(const PolicyOptions&) const { return std::nullopt; }

  /// Options with which a step gives the same bits and may hold less on the device, the one first that costs
  /// the least time; empty: there are none. What a run that was refused memory may go on with: its plan says
  /// which lowers the peak enough.
  virtual std::vector<PolicyOptions> tighter(const PolicyOptions&, c10::Device) const { return {}; }

  // Plans compare a job with and without each policy. Off is the baseline that its saving is measured
  // against, which may be another place for what it holds.
  virtual bool is_on(const PolicyOptions& options, c10::Device) const;
  /// What is switched so already stays as it was written. Not asked for: where it has no effect, that is no
  /// error.
  virtual void switch_to(PolicyOptions& options, c10::Device, bool on) const;
  /// Not made, with what of its options would be refused then.
  virtual void switch_off(PolicyOptions& options) const { enabled(options) = Enabled::off; }
  /// How it was switched off, and what the job has then: "switched off", "all activations kept".
  virtual std::string off_words() const { return "switched off"; }
  virtual std::string baseline(const PolicyOptions&) const { return "no " + name(); }

  /// policies.<name>.enabled
  Enabled& enabled(PolicyOptions& options) const;
  Enabled enabled(const PolicyOptions& options) const { return enabled(const_cast<PolicyOptions&>(options)); }
};

/// Adds a policy of a program's own, which must outlive all PolicyOptions. In the seam it stands after the
/// built-in ones and those registered before: outermost. Throws std::logic_error if another has its name, and
/// once policy_kinds() was called, as PolicyOptions does: call it first in main(), or by a static object.
void register_policy(const PolicyKind& kind);

/// Those that act in training, in the order of the seam's layers, from the inside out, which is the order of
/// tables and reports: precision, attention, fusion, shard, ema, checkpoint, and those registered.
const std::vector<const PolicyKind*>& policy_kinds();
/// Of these, those that have a use where so many ranks train.
const std::vector<const PolicyKind*>& policy_kinds(int64_t ranks);
/// Those that act without gradient and step, likewise: precision, attention, inference, and those registered.
const std::vector<const PolicyKind*>& inference_kinds();

/// Throws std::invalid_argument if there is none.
const PolicyKind& policy_kind(const std::string& name);
/// The built-in one that recomputes.
const PolicyKind& recomputing_kind();

/// Which are on, in the order of policy_kinds(ranks).
using PolicySwitches = std::vector<bool>;
PolicySwitches switches_of(const PolicyOptions& options, c10::Device device, int64_t ranks = 1);
PolicyOptions with_switches(PolicyOptions options, c10::Device device, const PolicySwitches& on,
                            int64_t ranks = 1);

}  // namespace dtk::policies
