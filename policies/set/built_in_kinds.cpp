#include "set/built_in_kinds.h"

#include <dtk/policies/advice.h>
#include <dtk/policies/attention.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/fusion.h>
#include <dtk/policies/inference.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/internal/shard_policy.h>
#include <dtk/policies/precision.h>

#include <utility>

namespace dtk::policies {
namespace {

/// Their options are members of PolicyOptions.
class BuiltIn : public PolicyKind {
 public:
  explicit BuiltIn(const char* name) : name_(name) {}
  std::string name() const override { return name_; }
  std::unique_ptr<OwnTable> new_options() const override { return nullptr; }

 private:
  const char* const name_;
};

class PrecisionKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>&) const override {
    return std::make_unique<Precision>(options.precision, subject.device, subject.paths);
  }
  bool acts_without_gradient() const override { return true; }
  bool is_on(const PolicyOptions& options, c10::Device device) const override {
    return PolicyKind::is_on(options, device) &&
           !(decides(options, device) && options.precision.cpu == CpuPrecision::fp32);
  }
  // On a CPU it is decided then.
  void switch_to(PolicyOptions& options, c10::Device device, bool on) const override {
    if (decides(options, device) && options.precision.cpu == CpuPrecision::probe)
      options.precision.cpu = on ? CpuPrecision::bf16 : CpuPrecision::fp32;
    if (on == is_on(options, device)) return;
    PolicyKind::switch_to(options, device, on);
    if (on && decides(options, device)) options.precision.cpu = CpuPrecision::bf16;
  }
  std::string baseline(const PolicyOptions&) const override { return "fp32"; }

 private:
  // Whether `cpu` says what it does.
  static bool decides(const PolicyOptions& options, c10::Device device) {
    return device.is_cpu() && options.precision.enabled == Enabled::by_default;
  }
};

class AttentionKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>&) const override {
    const AttentionKernel kernel = options.attention.kernel;
    if (subject.training && !subject.device.is_cuda() && options.attention.enabled != Enabled::off &&
        kernel != AttentionOptions().kernel) {
      throw PolicyError("policies.attention.kernel", " = \"" + text_of(kernel) +
                                                         "\" has no effect on the CPU; " +
                                                         advise("policies.attention.kernel", "\"flash\""));
    }
    return std::make_unique<AttentionPolicy>(options.attention);
  }
  bool acts_switched_off() const override { return true; }  // it materialises what is fused
  bool acts_without_gradient() const override { return true; }
  std::string baseline(const PolicyOptions&) const override { return "stored attention weights"; }
};

class FusionKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>&) const override {
    return std::make_unique<FusionPolicy>(options.fusion, subject.device);
  }
  bool is_on(const PolicyOptions& options, c10::Device device) const override {
    return PolicyKind::is_on(options, device) && (!device.is_cuda() || options.fusion.cuda);
  }
  void switch_to(PolicyOptions& options, c10::Device device, bool on) const override {
    if (on == is_on(options, device)) return;
    PolicyKind::switch_to(options, device, on);
    if (on && device.is_cuda()) options.fusion.cuda = true;
  }
  std::string baseline(const PolicyOptions&) const override { return "operators one after the other"; }
};

// What is sent as bf16 changes no bit where autocast would round it to the same.
void check_gather(const PolicyOptions& options, const Subject& subject) {
  const Shards& shards = *subject.shards;
  if (!shards.divides_weights() || shards.sends() != ShardGather::bf16) return;
  const Precision precision(options.precision, subject.device, subject.paths);
  if (!precision.active()) {
    throw PolicyError("policies.shard.gather",
                      " = \"bf16\" sends weights as autocast rounds them, and here nothing does (" +
                          precision.report().reason + "); " + advise("policies.precision.enabled", "true") +
                          ", or remove it");
  }
  for (const std::string& target : shards.targets()) {
    if (!precision.keeps_fp32(target)) continue;
    throw PolicyError("policies.shard.gather",
                      " = \"bf16\" would round the weights of " + target +
                          ", which policies.precision.fp32 keeps; name other modules in "
                          "policies.shard.targets, or remove it");
  }
}

class ShardKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>&) const override {
    check_gather(options, subject);
    return std::make_unique<ShardPolicy>(*subject.shards);
  }
  bool acts_alone() const override { return false; }
  bool acts_without_step() const override { return false; }
  void switch_off(PolicyOptions& options) const override { options.shard = {.enabled = Enabled::off}; }
  std::string baseline(const PolicyOptions& options) const override {
    const std::string weights = options.shard.level == ShardLevel::parameters ? "weights, " : "";
    return weights + "moments, gradients and average whole at each rank";
  }
};

class EmaKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>& engine) const override {
    const bool of_own_parts = subject.shards != nullptr && subject.shards->divides();
    return std::make_unique<Ema>(options.ema, of_own_parts ? subject.shards->own() : subject.parameters,
                                 std::move(engine), of_own_parts);
  }
  bool acts_without_step() const override { return false; }
  StepsOption period(PolicyOptions& options) const override { return {"every", &options.ema.every}; }
  // Off is another place. A run without an average has none in that position either.
  bool is_on(const PolicyOptions& options, c10::Device device) const override {
    return PolicyKind::is_on(options, device) && options.ema.device == EmaDevice::cpu;
  }
  void switch_to(PolicyOptions& options, c10::Device device, bool on) const override {
    if (on == is_on(options, device)) return;
    if (on) options.ema.enabled = Enabled::by_default;  // asked for, it is refused where nothing can be moved
    if (on && device.is_cpu()) options.ema.pinned = true;  // likewise
    options.ema.device = on ? EmaDevice::cpu : EmaDevice::same;
  }
  // On a CPU there is nowhere else.
  std::vector<PolicyOptions> tighter(const PolicyOptions& options, c10::Device device) const override {
    if (device.is_cpu() || enabled(options) == Enabled::off || is_on(options, device)) return {};
    PolicyOptions elsewhere = options;
    elsewhere.ema.device = EmaDevice::cpu;
    return {elsewhere};
  }
  std::string off_words() const override { return "on the training device"; }
  std::string baseline(const PolicyOptions& options) const override {
    return enabled(options) == Enabled::off ? "no average, as configured"
                                            : "the average on the training device";
  }
};

class CheckpointKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>&) const override {
    return std::make_unique<CheckpointPolicy>(options.checkpoint, subject.paths, subject.parameters);
  }
  bool recomputes() const override { return true; }
  void switch_to(PolicyOptions& options, c10::Device device, bool on) const override {
    PolicyKind::switch_to(options, device, on);
    // Chosen for a job that recomputes; of one that does not, all there is to recompute.
    if (on && options.checkpoint.keep.word == KeepWord::automatic) options.checkpoint.keep = KeepWord::block;
  }
  std::string baseline(const PolicyOptions&) const override { return "all activations kept"; }
  // A longer segment keeps fewer inputs and recomputes more at once: which of the two counts is measured.
  std::optional<OtherSetting> other_setting(const PolicyOptions& options) const override {
    if (options.checkpoint.segment == 1) return std::nullopt;
    OtherSetting shortest{options, "segment = " + std::to_string(options.checkpoint.segment), "segment = 1"};
    shortest.options.checkpoint.segment = 1;
    return shortest;
  }
  // All targets recomputed, keeping nothing; then what that keeps, their inputs, in host memory.
  std::vector<PolicyOptions> tighter(const PolicyOptions& options, c10::Device) const override {
    PolicyOptions all = options;
    CheckpointOptions& choice = all.checkpoint;
    if (choice.enabled == Enabled::off) choice.enabled = Enabled::by_default;
    choice.every = choice.segment = 1;
    std::vector<PolicyOptions> choices;
    for (const SegmentKeeps& keep :
         {SegmentKeeps(KeepWord::block), SegmentKeeps({text_of(KeepWord::offload)})}) {
      choice.keep = keep;
      if (options.checkpoint == choice) {
        choices.clear();  // those before it hold more
      } else {
        choices.push_back(all);
      }
    }
    return choices;
  }
};

class InferenceKind final : public BuiltIn {
 public:
  using BuiltIn::BuiltIn;
  std::unique_ptr<Policy> make(const PolicyOptions& options, const Subject& subject,
                               std::unique_ptr<StagingCopies>&) const override {
    check_heads(options.inference, subject.paths);
    return std::make_unique<InferencePolicy>(options.inference);
  }
  bool acts_in_training() const override { return false; }
  bool acts_without_gradient() const override { return true; }
  bool acts_switched_off() const override { return true; }  // everything is kept, and whole
  std::string baseline(const PolicyOptions&) const override {
    return "all results kept, all rows at once, gradients expected";
  }
  // Of a dense head, whose results are as large as pictures; nearly the same bits, as parts_left_out() says.
  std::vector<PolicyOptions> tighter(const PolicyOptions& options, c10::Device) const override {
    std::vector<PolicyOptions> choices;
    if (enabled(options) == Enabled::off || options.inference.head_chunk) return choices;
    for (const int64_t samples : {4, 2, 1}) {
      choices.push_back(options);
      choices.back().inference.head_chunk = samples;
    }
    return choices;
  }
  std::vector<OtherSetting> parts_left_out(const PolicyOptions& options) const override {
    std::vector<OtherSetting> all;
    if (enabled(options) == Enabled::off) return all;
    const std::string same = "same bits", near = "fp32: within 1e-5";
    const auto leave_out = [&](const std::string& now, const std::string& other, const std::string& results,
                               const auto& change) {
      OtherSetting one{options, now, other, results};
      change(one.options.inference);
      if (!(one.options == options)) all.push_back(std::move(one));
    };
    const InferenceOptions& set = options.inference;
    leave_out("gradients = false", "gradients = true", same, [](InferenceOptions& o) { o.gradients = true; });
    leave_out("narrow_weights = true", "narrow_weights = false", "other roundings",
              [](InferenceOptions& o) { o.narrow_weights = false; });
    for (const Taps taps : {Taps::tapped, Taps::all}) {
      if (taps > set.taps)
        leave_out("taps = \"" + text_of(set.taps) + "\"", "taps = \"" + text_of(taps) + "\"", same,
                  [&](InferenceOptions& o) { o.taps = taps; });
    }
    for (const auto& [name, chunk] : {std::pair("frame_chunk", &InferenceOptions::frame_chunk),
                                      {"token_chunk", &InferenceOptions::token_chunk},
                                      {"query_chunk", &InferenceOptions::query_chunk},
                                      {"head_chunk", &InferenceOptions::head_chunk}}) {
      // Queries run by tokens where no size is set for them: there is nothing to leave out.
      if (chunk == &InferenceOptions::query_chunk && set.query_chunk.value_or(0) == 0) continue;
      leave_out(name, std::string(name) + " = 0", near, [&](InferenceOptions& o) { o.*chunk = 0; });
    }
    return all;
  }
};

}  // namespace

// The order of the seam's layers, from the inside out: a segment that checkpointing recomputes must meet the
// casts and the attention of its first run.
std::vector<const PolicyKind*> built_in_kinds() {
  static const PrecisionKind precision("precision");
  static const AttentionKind attention("attention");
  static const FusionKind fusion("fusion");
  static const ShardKind shard("shard");
  static const EmaKind ema("ema");
  static const CheckpointKind checkpoint("checkpoint");
  static const InferenceKind inference("inference");
  return {&precision, &attention, &fusion, &shard, &ema, &checkpoint, &inference};
}

}  // namespace dtk::policies
