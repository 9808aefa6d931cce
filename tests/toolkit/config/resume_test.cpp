// Two configurations compared, and which differences a resumed run may have.
#include "support/catch.h"
#include "support/runs/smallest_config.h"
#include "toolkit/config/config_io.h"

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

TEST_CASE("resume: which keys may change") {
  CHECK(dtk::keys_that_may_change_on_resume() ==
        std::vector<std::string>{"train.out",
                                 "train.threads",
                                 "train.steps",
                                 "train.epochs",
                                 "train.seconds",
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
                                 "data.prefetch",
                                 "data.threads",
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
                                 "memory.split",
                                 "log.tensorboard",
                                 "log.report",
                                 "log.peak_tflops",
                                 "policies.ema.device",
                                 "policies.ema.pinned",
                                 "policies.checkpoint.enabled",
                                 "policies.checkpoint.targets",
                                 "policies.checkpoint.every",
                                 "policies.checkpoint.segment",
                                 "policies.checkpoint.keep",
                                 "policies.checkpoint.offload_min_bytes"});
}

TEST_CASE("resume: another configuration is refused with the keys that differ") {
  RunConfig written = smallest();
  dit::options_of(written).model = {.name = "custom", .depth = 2, .hidden = 128, .heads = 4, .patch = 4};
  RunConfig now = written;
  CHECK(resume_problem("c", "f", written, now).empty());
  now.train.steps = 200;
  dit::options_of(now).grid.guidance = 2;
  now.memory.ledger = false;
  CHECK(resume_problem("c", "f", written, now).empty());
  dit::options_of(now).model.hidden = 256;
  now.train.seed = 3;
  CHECK(resume_problem("runs/a/checkpoints/100", "runs/a/config.toml", written, now) ==
        "checkpoint runs/a/checkpoints/100 was written with another configuration:\n"
        "  train.seed: 0 in the checkpoint, 3 now\n"
        "  model.hidden: 128 in the checkpoint, 256 now\n"
        "use the checkpoint's configuration (runs/a/config.toml) or start a new run in another train.out");
}
