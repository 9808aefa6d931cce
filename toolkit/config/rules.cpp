#include "toolkit/config/rules.h"

#include <dtk/policies/advice.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>

#include "toolkit/config/families.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/range.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/core/text.h"

namespace dtk {
namespace {

using policies::advise;

constexpr char kNoEnd[] =
    "none of train.steps, train.epochs and train.seconds is set; set at least one of them, so that the run "
    "ends";

/// "data.batch = 15 or 18, or ": the multiples of `accumulate` next to `batch`.
std::string near_batches(int64_t batch, int64_t accumulate) {
  const int64_t below = batch / accumulate * accumulate;
  if (below > std::numeric_limits<int64_t>::max() - accumulate) return "set ";
  const std::string above = toml_text(below + accumulate);
  return advise("data.batch", below > 0 ? toml_text(below) + " or " + above : above) + ", or ";
}

class Rules final : public RuleCheck {
 public:
  using RuleCheck::RuleCheck;

  void check() const {
    check_family();
    const ConfiguredFamily& family = family_named(config_.train.model);
    check_parts();
    family.check_model(*this);
    check_length();
    check_data();
    check_average();
    family.check_samples(*this);
    check_use();
  }

 private:
  // Of another family nothing may be written: its rules would speak of what the run has not.
  void check_family() const {
    for (const auto& [key, place] : locations_) {
      if (!is_of_another_model(config_, key)) continue;
      fail(key, fmt::format("{} has no use with train.model = {}; {}, or change train.model", key,
                            toml_text(config_.train.model), removal({key})));
    }
    const ConfiguredFamily& own = family_named(config_.train.model);
    if (is_choice(own.data_kinds(), config_.data.kind)) return;
    fail("data.kind", fmt::format("{} is not what {} is trained on; allowed: {}{}",
                                  setting("data.kind", config_.data.kind), setting("train.model", own.name()),
                                  own.data_kinds(), who_reads(own)));
  }

  // Of the default family only: who names another one knows that there are several.
  std::string who_reads(const ConfiguredFamily& own) const {
    if (&own != families().front()) return "";
    for (const ConfiguredFamily* const family : families()) {
      if (is_choice(family->data_kinds(), config_.data.kind))
        return fmt::format("; {} are read with {}", config_.data.kind,
                           setting("train.model", family->name()));
    }
    return "";
  }

  void check_parts() const {
    const std::vector<std::string> all = family_named(config_.train.model).parts();
    std::set<std::string> seen;
    for (const std::string& part : config_.train.parts) {
      if (all.empty()) return;  // check_written() says so
      if (!contains(all, part)) {
        fail("train.parts",
             fmt::format("train.parts names {}, which {} has not; allowed: {}", toml_text(part),
                         setting("train.model", config_.train.model), listed(all, " and ")));
      }
      if (!seen.insert(part).second)
        fail("train.parts", "train.parts names " + toml_text(part) + " twice; name it once");
    }
    if (!all.empty() && config_.train.parts.empty())
      fail("train.parts",
           "train.parts is empty, so that nothing is trained; name some of " + listed(all, ", "));
  }

  void check_length() const {
    const TrainOptions& train = config_.train;
    if (train.out.empty()) {
      fail("train.out", "train.out is empty; name a folder of its own for the run, e.g. \"runs/mine\"");
    }
    if (!has_end(train) && !family_named(train.model).infers()) fail("train.steps", kNoEnd);
    if (config_.schedule.kind == ScheduleKind::epochs && !train.epochs) {
      fail("schedule.kind",
           "schedule.kind = \"epochs\" needs train.epochs, which is not set: the rate of an epoch depends on "
           "how many there are; set it, or " +
               advise("schedule.kind", toml_text(ScheduleKind::constant)));
    }
    const int64_t warmup = config_.schedule.warmup;
    if (train.steps && warmup > *train.steps) {
      const std::string steps = toml_text(*train.steps);
      fail("schedule.warmup", fmt::format("schedule.warmup = {} is longer than the run; allowed: [0, {}] "
                                          "with train.steps = {}; for a short trial {}",
                                          toml_text(warmup), steps, steps, advise("schedule.warmup", "0")));
    }
    const policies::EmaOptions& ema = config_.policies.ema;
    if (train.steps && ema.enabled != policies::Enabled::off && ema.every > *train.steps) {
      const std::string steps = toml_text(*train.steps);
      fail("policies.ema.every", fmt::format("policies.ema.every = {} is longer than the run, whose average "
                                             "would never begin; allowed: [1, {}] with train.steps = {}",
                                             toml_text(ema.every), steps, steps));
    }
  }

  // Keys that were written and that other keys make meaningless.
  void check_use() const {
    if (!config_.train.init_key.empty() && config_.train.init_from.empty()) {
      fail("train.init_key", "train.init_key has no use without train.init_from, whose weights it chooses; " +
                                 removal({"train.init_key"}) + ", or set train.init_from");
    }
    if (config_.memory.budget && !config_.memory.ledger) {
      fail("memory.budget", "memory.budget needs the ledger, and memory.ledger = false; remove one of them");
    }
    if (placement_is_open(config_) && !config_.memory.budget) {
      fail("policies.checkpoint.keep",
           "policies.checkpoint.keep = \"auto\" recomputes as little as memory.budget allows, which is "
           "not set; set it, or " +
               advise("policies.checkpoint.keep", toml_text(policies::KeepWord::block)));
    }
    if (level_is_open(config_) && !config_.memory.budget) {
      fail("policies.shard.level",
           "policies.shard.level = \"auto\" is the first that fits memory.budget, which is not set; set it, "
           "or " +
               advise("policies.shard.level", toml_text(policies::ShardLevel::optimizer)));
    }
    check_policies();
    check_written();
  }

  void check_policies() const {
    const policies::PrecisionOptions& precision = config_.policies.precision;
    // Switched off is another matter: then no key of the policy has an effect (switched_off()).
    if (precision.enabled == policies::Enabled::on && precision.cpu != policies::CpuPrecision::probe) {
      fail("policies.precision.cpu",
           fmt::format("policies.precision.cpu decides what policies.precision.enabled = \"default\" means, "
                       "which is true here; {}, or {}",
                       removal({"policies.precision.cpu"}),
                       advise("policies.precision.enabled", toml_text(policies::Enabled::by_default))));
    }
    check_gather();
    check_kept_attention();
    const policies::EmaOptions& ema = config_.policies.ema;
    if (!ema.pinned && ema.device == policies::EmaDevice::same && ema.enabled != policies::Enabled::off) {
      fail("policies.ema.pinned",
           "policies.ema.pinned = false has no use with policies.ema.device = \"same\", which copies "
           "nothing; " +
               removal({"policies.ema.pinned"}) + ", or change policies.ema.device");
    }
  }

  void check_gather() const {
    const policies::ShardOptions& shard = config_.policies.shard;
    if (shard.enabled == policies::Enabled::off || shard.gather == policies::ShardGather::fp32) return;
    if (shard.level == policies::ShardLevel::optimizer) return;  // where it has no use
    if (config_.policies.precision.enabled == policies::Enabled::on) return;
    fail("policies.shard.gather",
         fmt::format("policies.shard.gather = \"bf16\" sends weights as autocast rounds them; {}, or {}",
                     advise("policies.precision.enabled", toml_text(policies::Enabled::on)),
                     advise("policies.shard.gather", toml_text(policies::ShardGather::fp32))));
  }

  // The models attend through the seam only, which calls no such operator then.
  void check_kept_attention() const {
    const policies::CheckpointOptions& checkpoint = config_.policies.checkpoint;
    if (config_.policies.attention.enabled != policies::Enabled::off) return;
    if (checkpoint.enabled == policies::Enabled::off) return;
    for (const std::string& kept : checkpoint.keep.results) {
      if (kept.find("scaled_dot_product") == std::string::npos) continue;
      fail("policies.checkpoint.keep",
           fmt::format("policies.checkpoint.keep names {}, an operator of fused attention, and "
                       "policies.attention.enabled = false calls none; take it out of the list, or {}",
                       toml_text(kept),
                       advise("policies.attention.enabled", toml_text(policies::Enabled::by_default))));
    }
  }

  void check_written() const {
    for (const auto& [key, place] : locations_) {
      const std::string because = useless_because(config_, key);
      if (because.empty()) continue;
      fail(key, fmt::format("{} has no use with {}; {}, or change {}", key, setting_of(config_, because),
                            removal({key}), because));
    }
  }

  void check_data() const {
    const int64_t batch = config_.data.batch;
    const int64_t accumulate = config_.train.accumulate;
    if (batch % accumulate != 0) {
      fail("train.accumulate",
           fmt::format("train.accumulate = {} does not divide data.batch = {}; every micro-batch has "
                       "data.batch / train.accumulate samples: {}train.accumulate to a divisor of {}",
                       toml_text(accumulate), toml_text(batch), near_batches(batch, accumulate),
                       toml_text(batch)));
    }
    const int64_t micro_batch = batch / accumulate, split = config_.memory.split;
    if (split > micro_batch) {
      fail("memory.split", fmt::format("memory.split = {} is more than the {} samples of a micro-batch; "
                                       "allowed: [1, {}]",
                                       split, micro_batch, micro_batch));
    }
    if (config_.memory.on_out_of_memory == OnOutOfMemory::escalate && !config_.memory.ledger) {
      fail("memory.on_out_of_memory",
           fmt::format("memory.on_out_of_memory = \"escalate\" needs the ledger, which says what did not "
                       "fit; {}, or {}",
                       advise("memory.ledger", "true"),
                       advise("memory.on_out_of_memory", toml_text(OnOutOfMemory::stop))));
    }
    if (config_.optimizer.decays == Decays::matrices && config_.optimizer.weight_decay == 0) {
      fail("optimizer.decays",
           "optimizer.decays = \"matrices\" has no use with optimizer.weight_decay = 0; " +
               removal({"optimizer.decays"}) + ", or set optimizer.weight_decay");
    }
    if (config_.data.order == DataOrder::grouped && !family_named(config_.train.model).has_lengths()) {
      fail("data.order", fmt::format("data.order = \"grouped\" has no use with train.model = \"{}\", whose "
                                     "samples are all of one length; {}",
                                     config_.train.model, removal({"data.order"})));
    }
    family_named(config_.train.model).check_data(*this);
    check_validation();
  }

  void check_validation() const {
    const TrainOptions& train = config_.train;
    const HeldOut held_out = family_named(train.model).held_out(config_);
    const auto needs_samples = [&](const std::string& key, const std::string& value) {
      fail(key, fmt::format("{} = {} needs held-out samples, and {}; {}, or set {}", key, value,
                            held_out.none, removal({key}), held_out.key));
    };
    if (!held_out.some) {
      if (train.validate_every > 0) needs_samples("train.validate_every", toml_text(train.validate_every));
      if (train.validate_ema) needs_samples("train.validate_ema", "true");
    }
    if (config_.data.samples && config_.data.validation >= *config_.data.samples) {
      const int64_t samples = *config_.data.samples;
      fail("data.validation",
           fmt::format(
               "data.validation = {} leaves nothing to train on of data.samples = {}; allowed: [0, {}]",
               toml_text(config_.data.validation), toml_text(samples), toml_text(samples - 1)));
    }
    if (train.validate_ema && config_.policies.ema.enabled == policies::Enabled::off) {
      fail("train.validate_ema",
           "train.validate_ema = true needs EMA weights, and policies.ema.enabled = false; " +
               advise("train.validate_ema", "false") + ", or enable the policy");
    }
  }

  void check_average() const {
    const bool no_ema = config_.policies.ema.enabled == policies::Enabled::off;
    if (config_.sample.ema && no_ema && written("sample.ema")) {
      fail("sample.ema", "sample.ema = true needs EMA weights, and policies.ema.enabled = false; " +
                             advise("sample.ema", "false") + ", or enable the policy");
    }
  }
};

}  // namespace

void check_rules(const LoadedConfig& loaded, const std::string& file_name) {
  Rules(loaded, file_name).check();
}

static void check_only_resumed(const LoadedConfig& loaded, const std::string& key, bool value,
                               const std::string& lets) {
  const auto place = loaded.locations.find(key);
  if (!value || place == loaded.locations.end()) return;
  throw ConfigError(fmt::format(
      "{}: {} = true has no use in a new run: it lets a resumed one go on with {}; remove it{}, or continue "
      "a run with --resume",
      place->second, key, lets,
      !written_by_set(loaded, key) ? " (what a file sets is taken back with --set " + key + "=default)"
                                   : ""));
}

bool has_end(const TrainOptions& train) {
  return train.steps || train.epochs || train.seconds;
}

void check_end(const LoadedConfig& loaded) {
  if (!has_end(loaded.config.train)) throw ConfigError(location_of(loaded, "train.model") + kNoEnd);
}

void check_new_run(const LoadedConfig& loaded) {
  check_end(loaded);
  check_only_resumed(loaded, "train.allow_thread_change", loaded.config.train.allow_thread_change,
                     "another number of threads");
  check_only_resumed(loaded, "data.allow_change", loaded.config.data.allow_change, "data that have changed");
}

bool placement_is_open(const RunConfig& config) {
  const policies::CheckpointOptions& checkpoint = config.policies.checkpoint;
  return checkpoint.enabled != policies::Enabled::off &&
         checkpoint.keep.word == policies::KeepWord::automatic;
}

bool level_is_open(const RunConfig& config) {
  const policies::ShardOptions& shard = config.policies.shard;
  return shard.enabled != policies::Enabled::off && shard.level == policies::ShardLevel::automatic;
}

}  // namespace dtk
