// Two configurations compared, and which differences a resumed run may have.
#include "support/catch.h"
#include "support/runs/smallest_config.h"
#include "toolkit/config/config_io.h"
#include "toolkit/config/keys.h"

namespace dit = dtk::dit;
using dtk::RunConfig;
using dtk::policies::Enabled;
using dtk::test::smallest;

TEST_CASE("differences: every table, unset options too") {
  RunConfig a = smallest();
  RunConfig b = smallest();
  CHECK(differences(a, b).empty());
  b.train.threads = 2;
  b.data.batch = 32;
  b.policies.ema.enabled = Enabled::off;
  const auto found = differences(a, b);
  REQUIRE(found.size() == 3);
  CHECK(found[0].key == "train.threads");
  CHECK(found[0].a == "not set");
  CHECK(found[0].b == "2");
  CHECK(found[1].key == "data.batch");
  CHECK(found[1].a == "16");
  CHECK(found[2].key == "policies.ema.enabled");
  CHECK(found[2].a == "\"default\"");
  CHECK(found[2].b == "false");
}

namespace {

std::vector<std::string> keys_that(dtk::OnResume what) {
  std::vector<std::string> keys;
  for (const dtk::KeyInfo& info : dtk::all_keys())
    if (dtk::on_resume(info.key) == what) keys.push_back(info.key);
  return keys;
}

}  // namespace

TEST_CASE("resume: which keys change nothing that was trained") {
  CHECK(keys_that(dtk::OnResume::harmless) ==
        std::vector<std::string>{"train.out",
                                 "train.log_every",
                                 "train.checkpoint_every",
                                 "train.sample_every",
                                 "train.keep_checkpoints",
                                 "train.validate_every",
                                 "train.validate_ema",
                                 "train.on_not_finite",
                                 "train.most_skipped",
                                 "train.slow_step",
                                 "train.allow_thread_change",
                                 "data.samples",
                                 "data.on_corrupt",
                                 "data.fingerprint",
                                 "data.allow_change",
                                 "data.prefetch",
                                 "data.threads",
                                 "data.images",
                                 "data.labels",
                                 "data.folder",
                                 "data.latents",
                                 "data.frames",
                                 "data.held_out",
                                 "data.normalization",
                                 "sample.steps",
                                 "sample.ema",
                                 "sample.sampler",
                                 "sample.respacing",
                                 "sample.eta",
                                 "sample.clip_x0",
                                 "sample.guidance",
                                 "sample.cfg_channels",
                                 "sample.classes",
                                 "sample.per_class",
                                 "sample.seed",
                                 "sample.frames",
                                 "memory.ledger",
                                 "memory.budget",
                                 "memory.on_over_budget",
                                 "memory.on_out_of_memory",
                                 "log.tensorboard",
                                 "log.report",
                                 "log.peak_tflops",
                                 "distributed.backend",
                                 "distributed.timeout",
                                 "distributed.interface",
                                 "policies.shard.enabled",
                                 "policies.shard.level",
                                 "policies.shard.prefetch",
                                 "policies.ema.device",
                                 "policies.ema.pinned",
                                 "policies.checkpoint.enabled",
                                 "policies.checkpoint.targets",
                                 "policies.checkpoint.every",
                                 "policies.checkpoint.segment",
                                 "policies.checkpoint.keep",
                                 "policies.checkpoint.offload_min_bytes"});
}

TEST_CASE("resume: which keys are what they were") {
  std::vector<std::string> common;
  for (const std::string& key : keys_that(dtk::OnResume::fixed))
    if (dtk::is_common_table(dtk::find_key(key)->table)) common.push_back(key);
  CHECK(common == std::vector<std::string>{"train.model", "train.parts", "train.seed", "train.init_from",
                                           "train.init_key", "data.kind", "data.validation", "data.order",
                                           "data.latent_shift", "data.latent_scale"});
  for (const char* key : {"model.depth", "model.classes", "diffusion.objective", "diffusion_planner.preset"})
    CHECK(dtk::on_resume(key) == dtk::OnResume::fixed);
  for (const char* key : {"optimizer.lr", "schedule.kind", "memory.split", "data.batch", "train.accumulate",
                          "data.flip", "policies.precision.enabled", "policies.ema.decay", "train.steps"})
    CHECK(dtk::on_resume(key) == dtk::OnResume::changes_result);
}

TEST_CASE("resume: what cannot change is refused with its reason") {
  RunConfig written = smallest();
  dit::options_of(written).model = {.name = dtk::models::DitPreset::custom, .depth = 2, .hidden = 128, .heads = 4, .patch = 4};
  RunConfig now = written;
  CHECK(resume_problem("c", "f", written, now).empty());
  now.train.steps = 200;
  dit::options_of(now).grid.guidance = 2;
  now.memory.ledger = false;
  CHECK(resume_problem("c", "f", written, now).empty());
  now.train.seed = 3;
  CHECK(
      resume_problem("runs/a/checkpoints/100", "runs/a/config.toml", written, now) ==
      "checkpoint runs/a/checkpoints/100 cannot go on so:\n"
      "  train.seed: 0 in the checkpoint, 3 now; the order of the data and what is held out follow from it\n"
      "use its own values (runs/a/config.toml), or start a new run in another train.out, which may begin "
      "with "
      "these weights: --set train.init_from=runs/a/checkpoints/100");
  dit::options_of(now).model.hidden = 256;
  CHECK(
      resume_problem("runs/a/checkpoints/100", "runs/a/config.toml", written, now) ==
      "checkpoint runs/a/checkpoints/100 cannot go on so:\n"
      "  train.seed: 0 in the checkpoint, 3 now; the order of the data and what is held out follow from it\n"
      "  model.hidden: 128 in the checkpoint, 256 now; the weights were trained with it\n"
      "use its own values (runs/a/config.toml), or start a new run in another train.out");
}

TEST_CASE("resume: an average may end, and not begin") {
  RunConfig with = smallest(), without = smallest();
  without.policies.ema.enabled = Enabled::off;
  CHECK(resume_problem("c", "f", with, without).empty());
  CHECK(resume_problem("c", "f", without, with) ==
        "checkpoint c cannot go on so:\n  policies.ema.enabled: false in the checkpoint, \"default\" now; "
        "there is no "
        "average of what was trained so far\nuse its own values (f), or start a new run in another "
        "train.out, which "
        "may begin with these weights: --set train.init_from=c");
}

TEST_CASE("resume: what changes is told, and whether the result does") {
  RunConfig written = smallest(), now = written;
  now.optimizer.lr = 1e-3;
  now.log.report = false;
  now.data.allow_change = true;
  CHECK(changes_on_resume(7, written, now) ==
        std::vector<dtk::ConfigChange>{{7, "optimizer.lr = 0.001 (was 1e-04)", true},
                                       {7, "log.report = false (was true)", false}});
}
