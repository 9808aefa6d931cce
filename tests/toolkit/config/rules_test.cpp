#include "support/catch.h"
#include "support/config_text.h"
#include "support/error_text.h"
#include "toolkit/config/config_io.h"
#include "toolkit/config/locations.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/file_system.h"

namespace dit = dtk::dit;
using dtk::ConfigError;
using dtk::LoadedConfig;
using Overrides = std::vector<std::string>;

namespace {

using dtk::test::error_in;
using dtk::test::read;
using dtk::test::runnable;

}  // namespace

TEST_CASE("config rules: the model") {
  CHECK(
      error_in("train.steps = 1\nmodel.name = \"DiT-S/4\"\nmodel.hidden = 128") ==
      "base.toml:3:16: model.hidden is fixed by model.name = \"DiT-S/4\"; remove it (what base.toml sets is "
      "taken back with --set model.hidden=default), or set model.name = \"custom\"");
  const std::string four = "train.steps = 1\nmodel = {depth = 1, hidden = 8, heads = 1, patch = 4}\n";
  CHECK(error_in(four, {"model.name=DiT-S/4"}) ==
        "base.toml:2:18: model.depth, model.hidden, model.heads and model.patch are fixed by model.name = "
        "\"DiT-S/4\"; remove them (what base.toml sets is taken back with --set model.depth=default --set "
        "model.hidden=default --set model.heads=default --set model.patch=default), or set model.name = "
        "\"custom\"");
  CHECK(dit::options_of(read(four, {"model.name=DiT-S/4", "model.depth=default", "model.hidden=default",
                                    "model.heads=default", "model.patch=default"})
                            .config)
            .model.name == dtk::models::DitPreset::s_4);
  CHECK(error_in("train.steps = 1", {"model.name=DiT-S/4", "model.depth=3"}) ==
        "--set model.depth=3: model.depth is fixed by model.name = \"DiT-S/4\"; remove it, or set model.name "
        "= \"custom\"");
  CHECK(error_in("train.steps = 1\nmodel.hidden = 128\nmodel.heads = 4") ==
        "base.toml: model.name = \"custom\" needs model.depth, model.hidden, model.heads and model.patch; "
        "missing: model.depth, model.patch; set them, or give a published name such as \"DiT-S/4\"");
  CHECK(error_in(runnable, {"model.image_size=30"}) ==
        "--set model.image_size=30: model.image_size = 30 is not divisible by model.patch = 4; set "
        "model.image_size = 28 or 32, or use a patch that divides 30");
}

TEST_CASE("config rules: keep = auto needs a budget, and segments of one module each") {
  const std::string keep = runnable + "policies.checkpoint.keep = \"auto\"\n";
  CHECK(error_in(keep) ==
        "base.toml:3:28: policies.checkpoint.keep = \"auto\" recomputes as little as memory.budget allows, "
        "which is not set; set it, or set policies.checkpoint.keep = \"block\"");
  const std::string with_budget = keep + "memory.budget = \"1GB\"\n";
  CHECK(read(with_budget).config.policies.checkpoint.keep == dtk::policies::KeepWord::automatic);
  for (const std::string key : {"every", "segment"}) {
    CHECK(error_in(with_budget + "policies.checkpoint." + key + " = 2") ==
          "base.toml:5:" + std::to_string(24 + key.size()) + ": policies.checkpoint." + key +
              " has no use with policies.checkpoint.keep = \"auto\"; remove it (what base.toml sets is taken "
              "back with --set policies.checkpoint." +
              key + "=default), or change policies.checkpoint.keep");
  }
  // Of a policy that is switched off no key has an effect.
  CHECK(read(keep, {"policies.checkpoint.enabled=false"}).config.policies.checkpoint.keep ==
        dtk::policies::KeepWord::automatic);
  const LoadedConfig loaded = read(with_budget);
  CHECK(dtk::parse_config(dtk::print_config(loaded), "again.toml", {}).config == loaded.config);
}

TEST_CASE("config rules: the run must end, and warm up before it does") {
  CHECK(error_in("model.name = \"DiT-S/4\"") ==
        "base.toml: none of train.steps, train.epochs and train.seconds is set; set at least one of them, so "
        "that the run "
        "ends");
  CHECK(
      error_in(runnable + "schedule.kind = \"epochs\"") ==
      "base.toml:3:17: schedule.kind = \"epochs\" needs train.epochs, which is not set: the rate of an epoch "
      "depends on how many there are; set it, or set schedule.kind = \"constant\"");
  const std::string by_epochs = "train.epochs = 7\nschedule.kind = \"epochs\"\nmodel.name = \"DiT-S/4\"\n";
  CHECK(read(by_epochs).config.train.epochs == 7);
  CHECK(
      error_in(by_epochs + "schedule.warmup = 3") ==
      "base.toml:4:19: schedule.warmup has no use with schedule.kind = \"epochs\"; remove it (what base.toml "
      "sets is taken back with --set schedule.warmup=default), or change schedule.kind");
  CHECK(error_in(runnable + "schedule.epochs.warmup = 3") ==
        "base.toml:3:26: schedule.epochs.warmup has no use with schedule.kind = \"cosine\"; remove it (what "
        "base.toml sets is taken back with --set schedule.epochs.warmup=default), or change schedule.kind");
  CHECK(error_in(runnable + "schedule.warmup = 101") ==
        "base.toml:3:19: schedule.warmup = 101 is longer than the run; allowed: [0, 100] with train.steps = "
        "100; for a short trial set schedule.warmup = 0");
  CHECK(error_in(runnable + "policies.ema.every = 101") ==
        "base.toml:3:22: policies.ema.every = 101 is longer than the run, whose average would never begin; "
        "allowed: "
        "[1, 100] with train.steps = 100");
  CHECK(read(runnable + "policies.ema.every = 101\npolicies.ema.enabled = false").config.policies.ema.every ==
        101);
  CHECK(read(runnable + "schedule.warmup = 100").config.schedule.warmup == 100);
  CHECK(read("train.seconds = 5\nschedule.warmup = 101\nmodel.name = \"DiT-S/4\"").config.schedule.warmup ==
        101);
}

TEST_CASE("config rules: data") {
  CHECK(error_in(runnable + "train.accumulate = 3") ==
        "base.toml:3:20: train.accumulate = 3 does not divide data.batch = 16; every micro-batch has "
        "data.batch / train.accumulate samples: set data.batch = 15 or 18, or train.accumulate to a divisor "
        "of 16");
  CHECK(error_in(runnable, {"train.accumulate=32"}) ==
        "--set train.accumulate=32: train.accumulate = 32 does not divide data.batch = 16; every micro-batch "
        "has data.batch / train.accumulate samples: set data.batch = 32, or train.accumulate to a divisor of "
        "16");
  CHECK(
      error_in(runnable + "data.folder = \"set\"") ==
      "base.toml:3:15: data.folder = \"set\" is not read with data.kind = \"idx\"; remove it (what base.toml "
      "sets is taken back with --set data.folder=default), or change data.kind");
  CHECK(error_in(runnable, {"data.folder=set"}) ==
        "--set data.folder=set: data.folder = \"set\" is not read with data.kind = \"idx\"; remove it, or "
        "change data.kind");
  const std::string idx = runnable + "data.images = \"i.gz\"\ndata.labels = \"l.gz\"";
  CHECK(error_in(idx, {"data.kind=images"}) ==
        "base.toml:3:15: data.images = \"i.gz\" and data.labels = \"l.gz\" are not read with data.kind = "
        "\"images\"; remove them (what base.toml sets is taken back with --set data.images=default --set "
        "data.labels=default), or change data.kind");
  CHECK(dit::options_of(read(idx, {"data.kind=images", "data.images=default", "data.labels=default"}).config)
            .data.images.empty());
}

TEST_CASE("config rules: a key of another kind of data is refused") {
  const auto no_use = [](const std::string& key, const std::string& value, const std::string& kind) {
    return "--set " + key + "=" + value + ": " + key + " = " +
           (key == "data.latents" || key == "data.labels" ? "\"" + value + "\"" : value) +
           (kind.empty() ? "" : " has no use with data.kind = \"" + kind + "\"");
  };
  CHECK(error_in(runnable, {"data.latents=a.npy"}) ==
        no_use("data.latents", "a.npy", "") +
            " is not read with data.kind = \"idx\"; remove it, or change data.kind");
  CHECK(error_in(runnable, {"data.kind=synthetic", "data.samples=9", "data.labels=b.npy"}) ==
        no_use("data.labels", "b.npy", "") +
            " is not read with data.kind = \"synthetic\"; remove it, or change data.kind");
  CHECK(error_in(runnable, {"data.latent_scale=0.5"}) ==
        no_use("data.latent_scale", "0.5", "idx") + "; remove it, or change data.kind");
  CHECK(error_in(runnable + "data.latent_scale = 0.5") ==
        "base.toml:3:21: data.latent_scale = 0.5 has no use with data.kind = \"idx\"; remove it (what "
        "base.toml "
        "sets is taken back with --set data.latent_scale=default), or change data.kind");
  CHECK(error_in(runnable, {"data.flip=true", "data.kind=latents"}) ==
        no_use("data.flip", "true", "latents") +
            ", as a mirrored latent is not the latent of the mirrored image; remove it, or change data.kind");
  CHECK(error_in(runnable, {"data.flip=true", "data.kind=synthetic"}) ==
        no_use("data.flip", "true", "synthetic") + "; remove it, or change data.kind");
  for (const std::string kind : {"idx", "latents", "synthetic"}) {
    CHECK(error_in(runnable, {"data.kind=" + kind, "data.on_corrupt=skip"}) ==
          "--set data.on_corrupt=skip: data.on_corrupt = \"skip\" has no use with data.kind = \"" + kind +
              "\"; remove it, or change data.kind");
  }
  CHECK(dit::options_of(read(runnable, {"data.kind=latents", "data.latents=a.npy", "data.labels=b.npy",
                                        "data.latent_scale=0.18215"})
                            .config)
            .data.latent_scale == 0.18215);
  CHECK(dit::options_of(read(runnable, {"data.kind=images", "data.flip=true", "data.on_corrupt=skip"}).config)
            .data.flip);
}

TEST_CASE("config rules: validation needs samples, and averages to validate with") {
  const std::string needs =
      " needs held-out samples, and data.validation = 0 holds none out; remove it, or set "
      "data.validation";
  CHECK(error_in(runnable, {"train.validate_every=5"}) ==
        "--set train.validate_every=5: train.validate_every = 5" + needs);
  CHECK(error_in(runnable, {"train.validate_ema=true"}) ==
        "--set train.validate_ema=true: train.validate_ema = true" + needs);
  CHECK(error_in(runnable, {"train.validate_ema=true", "data.validation=9", "policies.ema.enabled=false"}) ==
        "--set train.validate_ema=true: train.validate_ema = true needs EMA weights, and "
        "policies.ema.enabled = "
        "false; set train.validate_ema = false, or enable the policy");
  const std::vector<std::string> all_held_out = {"data.samples=17", "data.validation=17"};
  CHECK(error_in(runnable, all_held_out) ==
        "--set data.validation=17: data.validation = 17 leaves nothing to train on of data.samples = 17; "
        "allowed: [0, 16]");
  CHECK(read(runnable, {"train.validate_every=5", "train.validate_ema=true", "data.validation=9"})
            .config.data.validation == 9);
}

TEST_CASE("config rules: samples") {
  CHECK(error_in(runnable + "sample.cfg_channels = 5") ==
        "base.toml:3:23: sample.cfg_channels = 5 is more than the model has; allowed: [0, 4] with "
        "model.channels = 4 (0 guides all)");
  const std::string no_null_label =
      "sample.guidance = 4.0 needs a null label, and model.class_dropout = 0 trains none; set "
      "sample.guidance "
      "= 1, or model.class_dropout above 0";
  CHECK(error_in(runnable + "model.class_dropout = 0") == "base.toml:3:23: " + no_null_label);
  CHECK(error_in(runnable + "model.class_dropout = 0\nsample.guidance = 4") ==
        "base.toml:4:19: " + no_null_label);
  CHECK(
      dit::options_of(read(runnable + "model.class_dropout = 0\nsample.guidance = 1").config).grid.guidance ==
      1.0);
}

TEST_CASE("config rules: a sampler draws from the objectives that it knows") {
  const std::string flow =
      " does not draw from a model of diffusion.objective = \"rectified_flow\"; allowed: euler "
      "or heun; remove it";
  CHECK(error_in(runnable + "sample.sampler = \"ddpm\"") ==
        "base.toml:3:18: sample.sampler = \"ddpm\"" + flow +
            " (what base.toml sets is taken back with --set sample.sampler=default) to have the first, or "
            "change "
            "diffusion.objective");
  CHECK(error_in(runnable, {"sample.sampler=ddim"}) ==
        "--set sample.sampler=ddim: sample.sampler = \"ddim\"" + flow +
            " to have the first, or change diffusion.objective");
  CHECK(error_in(runnable, {"diffusion.objective=epsilon", "sample.sampler=euler"}) ==
        "--set sample.sampler=euler: sample.sampler = \"euler\" does not draw from a model of "
        "diffusion.objective = "
        "\"epsilon\"; allowed: ddpm or ddim; remove it to have the first, or change diffusion.objective");
  for (const std::string objective : {"v", "x0"}) {
    CHECK(error_in(runnable, {"diffusion.objective=" + objective, "sample.sampler=heun"}) ==
          "--set sample.sampler=heun: sample.sampler = \"heun\" does not draw from a model of "
          "diffusion.objective = \"" +
              objective +
              "\"; allowed: ddim or ddpm; remove it to have the first, or change diffusion.objective");
  }
  CHECK(error_in(runnable, {"diffusion.objective=noise"}) ==
        "--set diffusion.objective=noise: diffusion.objective = \"noise\" is not a choice; allowed: "
        "rectified_flow | "
        "epsilon | v | x0");
}

TEST_CASE("config rules: the steps of a sampler are steps of the diffusion") {
  const auto with = [&](const std::string& one, const std::string& other = "") {
    Overrides all = {"diffusion.objective=epsilon", one};
    if (!other.empty()) all.push_back(other);
    return error_in(runnable, all);
  };
  const std::string range =
      " is out of range with sample.sampler = \"ddpm\", which goes through steps of the diffusion; allowed: "
      "[2, ";
  CHECK(with("sample.steps=1001") ==
        "--set sample.steps=1001: sample.steps = 1001" + range + "1000] with diffusion.steps = 1000");
  CHECK(with("sample.steps=1") ==
        "--set sample.steps=1: sample.steps = 1" + range + "1000] with diffusion.steps = 1000");
  CHECK(with("sample.steps=101", "diffusion.steps=100") ==
        "--set sample.steps=101: sample.steps = 101" + range + "100] with diffusion.steps = 100");
  const std::string disagree =
      "sample.steps = 40 does not agree with sample.respacing = \"10,15,20\", which gives 45 steps; remove "
      "it";
  CHECK(with("sample.respacing=10,15,20", "sample.steps=40") ==
        "--set sample.steps=40: " + disagree + ", or change sample.respacing");
  CHECK(
      error_in(runnable + "sample.steps = 40", {"diffusion.objective=v", "sample.respacing=10,15,20"}) ==
      "base.toml:3:16: " + disagree +
          " (what base.toml sets is taken back with --set sample.steps=default), or change sample.respacing");
  CHECK(with("sample.respacing=ddim300") ==
        "--set sample.respacing=ddim300: sample.respacing = \"ddim300\": no whole stride through 1000 steps "
        "takes 300 "
        "of them; the nearest are ddim250 and ddim334");
  CHECK(with("sample.respacing=many") ==
        "--set sample.respacing=many: sample.respacing = \"many\": wanted: a number of steps (\"250\"), one "
        "for each "
        "of several equal sections (\"10,15,20\") or, for equal strides, \"ddim50\"");
  CHECK(with("sample.respacing=250", "sample.steps=250") == "(nothing was thrown)");
  CHECK(error_in(runnable + "diffusion.objective = \"v\"\nsample.respacing = 250") ==
        "base.toml:4:20: sample.respacing = 250 is an integer; wanted: a string");
  CHECK(with("diffusion.steps=20", "sample.steps=10") ==
        "--set diffusion.steps=20: diffusion.steps = 20 is too few for diffusion.betas = \"linear\", the "
        "last of which "
        "would reach 1; allowed: at least 21, or set diffusion.betas = \"cosine\"");
  CHECK(read(runnable, {"diffusion.objective=epsilon", "diffusion.steps=20", "diffusion.betas=cosine"})
            .config.sample.steps == 20);
}

TEST_CASE("config rules: keys of another objective or sampler are refused") {
  struct Row {
    std::string override, objective, sampler, because, change;
  };
  const std::string flow = "rectified_flow", epsilon = "epsilon";
  const std::string is_flow = "diffusion.objective = \"rectified_flow\"", objective = "diffusion.objective";
  for (const Row& row :
       {Row{"diffusion.time=uniform", epsilon, "ddpm", "diffusion.objective = \"epsilon\"", objective},
        Row{"diffusion.time=logit_normal", "v", "ddim", "diffusion.objective = \"v\"", objective},
        Row{"diffusion.steps=1000", flow, "euler", is_flow, objective},
        Row{"diffusion.betas=cosine", flow, "heun", is_flow, objective},
        Row{"sample.eta=0.5", flow, "euler", "sample.sampler = \"euler\"", "sample.sampler"},
        Row{"sample.eta=0.0", epsilon, "ddpm", "sample.sampler = \"ddpm\"", "sample.sampler"},
        Row{"sample.respacing=ddim50", flow, "heun", "sample.sampler = \"heun\"", "sample.sampler"},
        Row{"sample.clip_x0=false", flow, "euler", "sample.sampler = \"euler\"", "sample.sampler"}}) {
    const std::string key = row.override.substr(0, row.override.find('='));
    CHECK(error_in(runnable, {"diffusion.objective=" + row.objective, "sample.sampler=" + row.sampler,
                              row.override}) == "--set " + row.override + ": " + key + " has no use with " +
                                                    row.because + "; remove it, or change " + row.change);
  }
  CHECK(error_in(runnable + "diffusion.time = \"uniform\"", {"diffusion.objective=x0"}) ==
        "base.toml:3:18: diffusion.time has no use with diffusion.objective = \"x0\"; remove it (what "
        "base.toml sets "
        "is taken back with --set diffusion.time=default), or change diffusion.objective");
}

TEST_CASE("config rules: configs/base.toml trains every objective by one key") {
  for (const std::string objective : {"rectified_flow", "epsilon", "v", "x0"}) {
    INFO(objective);
    CHECK_NOTHROW(dtk::load_config(dtk::posix_file_system(), DTK_SOURCE_DIR "/configs/base.toml",
                                   {"diffusion.objective=" + objective}));
  }
}

TEST_CASE("config rules: EMA samples without an EMA are an error only if asked for") {
  const std::string no_ema = runnable + "policies.ema.enabled = false\n";
  CHECK(read(no_ema).config.sample.ema);
  CHECK(
      error_in(no_ema + "sample.ema = true") ==
      "base.toml:4:14: sample.ema = true needs EMA weights, and policies.ema.enabled = false; set sample.ema "
      "= false, or enable the policy");
}

TEST_CASE("config rules: grids that nobody draws are not asked for") {
  const std::string none = runnable + "sample.per_class = 0\n";
  CHECK(
      error_in(none + "train.sample_every = 50") ==
      "base.toml:4:22: train.sample_every = 50 has no use with sample.per_class = 0, which draws no samples; "
      "remove it (what base.toml sets is taken back with --set train.sample_every=default), or raise "
      "sample.per_class");
  CHECK(error_in(none, {"sample.classes=0-2"}) ==
        "--set sample.classes=0-2: sample.classes has no use with sample.per_class = 0, which draws no "
        "samples; "
        "remove it, or raise sample.per_class");
  CHECK(error_in(runnable + "model.classes = 10\nsample.classes = 11") ==
        "base.toml:4:18: sample.classes = 11 is an integer; wanted: a string (classes by name, number or "
        "range: \"cat,dog\", \"0-4\" or \"all\")");
  CHECK(error_in(runnable + "sample.classes = \"cat,,dog\"") ==
        "base.toml:3:18: sample.classes = \"cat,,dog\": an entry is empty; allowed: names, numbers, ranges "
        "such "
        "as 0-4, and all");
  CHECK(dit::options_of(
            read(runnable + "model.classes = 10\nsample.classes = \"0-9\"\ntrain.sample_every = 5").config)
            .grid.classes == "0-9");
}

TEST_CASE("config rules: without grids, raw weights for them are not asked for, and dit-sample's keys stay") {
  const std::string none = runnable + "sample.per_class = 0\n";
  const std::string no_use =
      "sample.ema = false has no use with sample.per_class = 0, which draws no samples; remove it";
  const std::string raise = ", or raise sample.per_class (dit-sample --raw draws with the raw weights)";
  CHECK(error_in(none + "sample.ema = false") ==
        "base.toml:4:14: " + no_use + " (what base.toml sets is taken back with --set sample.ema=default)" +
            raise);
  CHECK(error_in(none, {"sample.ema=false"}) == "--set sample.ema=false: " + no_use + raise);
  const LoadedConfig kept = read(none + "sample.guidance = 2.5\nsample.seed = 7\nsample.sampler = \"heun\"");
  const dtk::RunConfig again = dtk::parse_config(dtk::print_config(kept), "saved.toml", {}).config;
  CHECK(again == kept.config);
  CHECK(dit::options_of(again).grid.guidance == 2.5);
  CHECK(dit::options_of(again).grid.seed == 7);
}

TEST_CASE("config rules: no result of fused attention is kept where attention is materialised") {
  const std::string keep =
      runnable +
      "policies.checkpoint.keep = [\"fc2_out\", \"aten::_scaled_dot_product_flash_attention_for_cpu\"]\n";
  CHECK(
      error_in(keep, {"policies.attention.enabled=false"}) ==
      "base.toml:3:28: policies.checkpoint.keep names \"aten::_scaled_dot_product_flash_attention_for_cpu\", "
      "an operator of fused attention, and policies.attention.enabled = false calls none; take it out of the "
      "list, or set policies.attention.enabled = \"default\"");
  CHECK_NOTHROW(read(keep));
  CHECK_NOTHROW(read(keep, {"policies.attention.enabled=false", "policies.checkpoint.enabled=false"}));
  CHECK_NOTHROW(
      read(runnable + "policies.checkpoint.keep = [\"fc2_out\"]\npolicies.attention.enabled = false"));
}

TEST_CASE("config rules: pinned copies of an average that is never copied are not asked for") {
  const std::string no_use =
      "policies.ema.pinned = false has no use with policies.ema.device = \"same\", which copies nothing; "
      "remove it";
  CHECK(error_in(runnable, {"policies.ema.device=same", "policies.ema.pinned=false"}) ==
        "--set policies.ema.pinned=false: " + no_use + ", or change policies.ema.device");
  CHECK(error_in(runnable + "policies.ema.pinned = false\npolicies.ema.device = \"same\"") ==
        "base.toml:3:23: " + no_use +
            " (what base.toml sets is taken back with --set policies.ema.pinned=default), or change "
            "policies.ema.device");
  CHECK_FALSE(read(runnable, {"policies.ema.pinned=false"}).config.policies.ema.pinned);
  CHECK_NOTHROW(read(
      runnable, {"policies.ema.device=same", "policies.ema.pinned=false", "policies.ema.enabled=false"}));
}

TEST_CASE("config rules: a memory budget needs the ledger") {
  const std::string message = "memory.budget needs the ledger, and memory.ledger = false; remove one of them";
  CHECK(error_in(runnable + "memory.budget = \"2GB\"\nmemory.ledger = false") ==
        "base.toml:3:17: " + message);
  CHECK(error_in(runnable + "memory.ledger = false", {"memory.budget=2GB"}) ==
        "--set memory.budget=2GB: " + message);
  CHECK(read(runnable + "memory.budget = \"2GB\"\nmemory.ledger = true").config.memory.budget->bytes ==
        2000000000);
  CHECK(read(runnable + "memory.budget = 1\nmemory.ledger = false", {"memory.budget=default"})
            .config.memory.ledger == false);
}

TEST_CASE("config rules: a key of weights needs weights to begin with") {
  CHECK(error_in(runnable, {"train.init_key=ema"}) ==
        "--set train.init_key=ema: train.init_key has no use without train.init_from, whose weights it "
        "chooses; remove it, or set train.init_from");
  const auto train = read(runnable, {"train.init_from=a.pt", "train.init_key=model"}).config.train;
  CHECK(train.init_from == "a.pt");
  CHECK(train.init_key == "model");
}

TEST_CASE("config rules: the precision on a CPU is read only where the default decides") {
  const std::string decides =
      "policies.precision.cpu decides what policies.precision.enabled = \"default\" means, which is true "
      "here; ";
  for (const auto precision : {dtk::policies::CpuPrecision::bf16, dtk::policies::CpuPrecision::fp32}) {
    const std::string cpu = dtk::policies::text_of(precision);
    CHECK(
        error_in(runnable + "policies.precision.cpu = \"" + cpu + "\"\npolicies.precision.enabled = true") ==
        "base.toml:3:26: " + decides +
            "remove it (what base.toml sets is taken back with --set policies.precision.cpu=default), or set "
            "policies.precision.enabled = \"default\"");
    CHECK(error_in(runnable, {"policies.precision.enabled=true", "policies.precision.cpu=" + cpu}) ==
          "--set policies.precision.cpu=" + cpu + ": " + decides +
              "remove it, or set policies.precision.enabled = \"default\"");
    CHECK(read(runnable, {"policies.precision.cpu=" + cpu}).config.policies.precision.cpu == precision);
    CHECK(read(runnable, {"policies.precision.cpu=" + cpu, "policies.precision.enabled=false"})
              .config.policies.precision.cpu == precision);  // no key of a policy that is off has an effect
  }
  for (const std::string enabled : {"true", "false"}) {
    CHECK(read(runnable, {"policies.precision.enabled=" + enabled, "policies.precision.cpu=probe"})
              .config.policies.precision.cpu == dtk::policies::CpuPrecision::probe);
  }
}

TEST_CASE("config rules: each policy of configs/base.toml is switched off by one key") {
  for (const std::string policy : {"precision", "attention", "fusion", "shard", "ema", "checkpoint"}) {
    INFO(policy);
    CHECK_NOTHROW(dtk::load_config(dtk::posix_file_system(), DTK_SOURCE_DIR "/configs/base.toml",
                                   {"policies." + policy + ".enabled=false"}));
  }
}

TEST_CASE("config rules: what a policy refuses has the place of the key it names, or of what asked for it") {
  const std::map<std::string, std::string> locations = {
      {"policies.checkpoint.targets", "base.toml:12:5"},
      {"policies.ema.enabled", "--set policies.ema.enabled=true"},
      {"policies.ema.decay", "base.toml:14:9"}};
  const auto placed = [&](const std::string& key, const std::string& rest) {
    return std::string(dtk::located(dtk::policies::PolicyError(key, rest), locations).what());
  };
  CHECK(placed("policies.checkpoint.targets", ": no match") ==
        "base.toml:12:5: policies.checkpoint.targets: no match");
  CHECK(placed("policies.ema.decay", " = 2 is too much") ==
        "base.toml:14:9: policies.ema.decay = 2 is too much");
  CHECK(placed("policies.ema", ": nothing to move") ==
        "--set policies.ema.enabled=true: policies.ema: nothing to move");
  CHECK(placed("policies.checkpoint", ": asked for") == "policies.checkpoint: asked for");
  CHECK(placed("", "another text") == "another text");
  // A text that only reads like one of a key.
  CHECK(placed("", "policies.ema.decay = 2") == "policies.ema.decay = 2");
}
