// What is printed of values that have no effect, or follow from others: read back, they must not become
// requests.
#include "support/catch.h"
#include "support/config_text.h"
#include "toolkit/config/config_io.h"

using dtk::LoadedConfig;
using dtk::parse_config;
using dtk::print_config;
using dtk::test::has_line;
using dtk::test::read_back;

TEST_CASE("config writer: what follows from the objective says so, and reads back equal") {
  const LoadedConfig loaded = parse_config("train.steps = 1\nmodel.name = \"DiT-S/4\"\n", "base.toml",
                                           {"diffusion.objective=epsilon", "sample.respacing=10,15,20"});
  const std::string printed = print_config(loaded);
  for (const std::string line :
       {"learn_sigma = true  # default: as the original DiT", "objective = \"epsilon\"  # --set",
        "# time has no effect: diffusion.objective = \"epsilon\"", "steps = 1000  # default",
        "betas = \"linear\"  # default", "sampler = \"ddpm\"  # default: usual with objective epsilon",
        "steps = 45  # default: what sample.respacing = \\\"10,15,20\\\" gives",
        "respacing = \"10,15,20\"  # --set", "# eta has no effect: sample.sampler = \"ddpm\"",
        "clip_x0 = false  # default"}) {
    INFO(line);
    CHECK(has_line(printed, line));
  }
  CHECK(read_back(printed) == loaded.config);
}

TEST_CASE("config writer: a default without effect does not become a request") {
  const LoadedConfig loaded = parse_config("train.steps = 1\nmodel.name = \"DiT-S/4\"\n", "base.toml",
                                           {"policies.ema.enabled=false"});
  const std::string printed = print_config(loaded);
  CHECK(has_line(printed, "# ema = true has no effect: policies.ema.enabled = false"));
  CHECK(read_back(printed) == loaded.config);
}

TEST_CASE("config writer: what is said of a policy that is switched off stays, and has no effect") {
  const std::string text =
      "train.steps = 1\nmodel.name = \"DiT-S/4\"\npolicies.ema.decay = 0.995\npolicies.ema.every = 1\n"
      "policies.precision.cpu = \"bf16\"\n";
  const LoadedConfig loaded =
      parse_config(text, "base.toml", {"policies.ema.enabled=false", "policies.precision.enabled=false"});
  const std::string printed = print_config(loaded);
  CHECK(has_line(printed, "decay = 0.995  # base.toml:3; no effect: policies.ema.enabled = false"));
  CHECK(has_line(printed, "every = 1  # base.toml:4"));
  CHECK(has_line(printed, "cpu = \"bf16\"  # base.toml:5; no effect: policies.precision.enabled = false"));
  CHECK(read_back(printed) == loaded.config);
  CHECK_THAT(print_config(parse_config(text, "base.toml", {})), !Catch::Contains("; no effect: policies."));
}

TEST_CASE("config writer: a policy that nobody asked for stays at its default when read back") {
  LoadedConfig loaded = parse_config("train.steps = 1\nmodel.name = \"DiT-S/4\"\n", "base.toml", {});
  const std::string printed = print_config(loaded);
  for (const std::string policy : {"precision", "attention", "fusion", "shard", "ema", "checkpoint"}) {
    INFO(policy);
    CHECK_THAT(printed, Catch::Contains("\n[policies." + policy + "]\nenabled = \"default\"  # default\n"));
  }
  CHECK(read_back(printed) == loaded.config);

  loaded.config.policies.precision.cpu = dtk::policies::CpuPrecision::bf16;
  loaded.origins["policies.precision.cpu"] = {dtk::Origin::Source::measured,
                                              "bf16 12.1 ms, fp32 20.3 ms a step (fastest of 7)"};
  const std::string decided = print_config(loaded);
  CHECK(has_line(decided, "cpu = \"bf16\"  # measured: bf16 12.1 ms, fp32 20.3 ms a step (fastest of 7)"));
  CHECK_THAT(decided, Catch::Contains("[policies.precision]\nenabled = \"default\"  # default\n"));
  CHECK(read_back(decided) == loaded.config);
}

TEST_CASE("config writer: a file name cannot break the text") {
  const LoadedConfig loaded = parse_config("train.steps = 1\nmodel.name = \"DiT-S/4\"\n", "a\n[b", {});
  CHECK(has_line(print_config(loaded), "steps = 1  # a\\n[b:1"));
  CHECK(read_back(print_config(loaded)) == loaded.config);
}
