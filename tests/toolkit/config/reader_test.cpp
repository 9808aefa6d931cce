#include <algorithm>

#include "support/catch.h"
#include "support/config_text.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/file_system.h"

namespace dit = dtk::dit;
using dtk::ConfigError;
using dtk::LoadedConfig;
using dtk::parse_config;
using dtk::policies::Enabled;
using dtk::test::error_text;
using Overrides = std::vector<std::string>;

namespace {

using dtk::test::error_in;
using dtk::test::read;
using dtk::test::runnable;

std::string error_of_set(const std::string& override) {
  return error_in(runnable, {override});
}

const std::string all_tables =
    "[train], [model], [diffusion], [diffusion_planner], [diffusion_planner.process], "
    "[diffusion_planner.loss], [diffusion_planner.augmentation], [llava], [llava.vision], [llava.text], "
    "[llava.lora], [llava.data], [llava.template], [vggt], [vggt.data], [vggt.loss], [vggt.infer], [data], "
    "[optimizer], [schedule], [schedule.epochs], [sample], [memory], [log], "
    "[distributed], [policies.precision], [policies.attention], [policies.fusion], [policies.shard], "
    "[policies.ema], "
    "[policies.checkpoint], "
    "[policies.inference]";

}  // namespace

TEST_CASE("config reader: values and their origins") {
  const LoadedConfig loaded = read(
      "[train]\n"
      "steps = 50\n"
      "seconds = 20\n"
      "allow_thread_change = true\n"
      "[model]\n"
      "name = 'DiT-S/4'\n"
      "[optimizer]\n"
      "lr = 3e-3\n",
      {"data.batch=32", "train.out=runs/b#32"});
  CHECK(loaded.config.train.steps == 50);
  CHECK(loaded.config.train.seconds == 20.0);
  CHECK(loaded.config.train.allow_thread_change);
  CHECK(dit::options_of(loaded.config).model.name == dtk::models::DitPreset::s_4);
  CHECK(loaded.config.optimizer.lr == 3e-3);
  CHECK(loaded.config.data.batch == 32);
  CHECK(loaded.config.train.out == "runs/b#32");
  CHECK(loaded.config.optimizer.beta1 == 0.9);
  CHECK_FALSE(loaded.config.train.threads.has_value());
  CHECK(text_of(loaded.origins.at("train.steps")) == "base.toml:2");
  CHECK(text_of(loaded.origins.at("optimizer.lr")) == "base.toml:8");
  CHECK(text_of(loaded.origins.at("data.batch")) == "--set");
  CHECK(text_of(loaded.origins.at("optimizer.beta1")) == "default");
  CHECK(text_of(loaded.origins.at("train.threads")) == "default");
}

TEST_CASE("config reader: a policy has three states") {
  CHECK(read(runnable).config.policies.ema.enabled == Enabled::by_default);
  CHECK(read(runnable + "policies.ema.enabled = \"default\"").config.policies.ema.enabled ==
        Enabled::by_default);
  CHECK(read(runnable + "policies.ema.enabled = true").config.policies.ema.enabled == Enabled::on);
  CHECK(read(runnable + "policies.ema.enabled = false").config.policies.ema.enabled == Enabled::off);
  CHECK(
      error_in(runnable + "policies.ema.enabled = \"yes\"") ==
      "base.toml:3:24: policies.ema.enabled = \"yes\" is not a choice; allowed: \"default\" | true | false");
  CHECK(error_in(runnable + "policies.ema.enabled = 1") ==
        "base.toml:3:24: policies.ema.enabled = 1 is an integer; wanted: one of \"default\" | true | false");
}

TEST_CASE("config reader: a choice is written as its texts are") {
  CHECK(error_in("[train]\nmodel = \"diffusion_planner\"\n[diffusion_planner]\npreset = \"h\"") ==
        "base.toml:4:10: diffusion_planner.preset = \"h\" is not a choice; allowed: H | M | UP");
}

TEST_CASE("config reader: what segments keep is a word or a list of results") {
  const auto keep = [](const std::string& value) {
    return read(runnable + "policies.checkpoint.keep = " + value).config.policies.checkpoint.keep;
  };
  const auto error = [](const std::string& value) {
    return error_in(runnable + "policies.checkpoint.keep = " + value);
  };
  CHECK(keep("\"all\"") == dtk::policies::KeepWord::all);
  CHECK(keep("[\"fc2_out\", \"aten::addmm\"]") == std::vector<std::string>{"fc2_out", "aten::addmm"});
  CHECK(keep("\"offload\"") == dtk::policies::KeepWord::offload);
  CHECK(keep("\"auto\"\nmemory.budget = 1000") == dtk::policies::KeepWord::automatic);
  CHECK(error("\"a list of names and operators\"") ==
        "base.toml:3:28: policies.checkpoint.keep = \"a list of names and operators\" is not a choice; "
        "allowed: all | auto | block | offload | elementwise | attention | gates | fc2 | a list of names and "
        "operators");
  CHECK(error("\"host\"") ==
        "base.toml:3:28: policies.checkpoint.keep = \"host\" is not a choice; allowed: all | auto | block | "
        "offload | elementwise | attention | gates | fc2 | a list of names and operators");
  CHECK(error("[]") ==
        "base.toml:3:28: policies.checkpoint.keep = [] is empty; allowed: all | auto | block | offload | "
        "elementwise | "
        "attention | gates | fc2 | a list of names and operators");
  CHECK(error("3") ==
        "base.toml:3:28: policies.checkpoint.keep = 3 is an integer; wanted: one of all | auto | block | "
        "offload | elementwise | attention | gates | fc2 | a list of names and operators");
}

TEST_CASE("config reader: learn_sigma follows the objective unless it is given") {
  const LoadedConfig loaded = read(runnable);
  CHECK_FALSE(dit::options_of(loaded.config).model.learn_sigma);
  CHECK(text_of(loaded.origins.at("model.learn_sigma")) == "default: rectified flow predicts no variance");
  CHECK(error_in(runnable + "model.learn_sigma = true") ==
        "base.toml:3:21: model.learn_sigma = true has no use with diffusion.objective = \"rectified_flow\", "
        "which "
        "predicts no variance; set model.learn_sigma = false");
}

TEST_CASE("config reader: variance, sampler and steps follow the objective unless they are given") {
  struct Row {
    const char* objective;
    bool learn_sigma;
    const char* sigma_reason;
    const char* sampler;
    int64_t steps;
  };
  for (const Row& row : {Row{"rectified_flow", false, "rectified flow predicts no variance", "euler", 25},
                         Row{"epsilon", true, "as the original DiT", "ddpm", 250},
                         Row{"v", false, "usual with objective v", "ddim", 50},
                         Row{"x0", false, "usual with objective x0", "ddim", 50}}) {
    INFO(row.objective);
    const LoadedConfig loaded = read(runnable, {std::string("diffusion.objective=") + row.objective});
    CHECK(dit::options_of(loaded.config).model.learn_sigma == row.learn_sigma);
    CHECK(text_of(loaded.origins.at("model.learn_sigma")) == std::string("default: ") + row.sigma_reason);
    CHECK(dit::options_of(loaded.config).sampler.sampler ==
          dtk::policies::parse_enum<dtk::SamplerKind>(row.sampler));
    CHECK(text_of(loaded.origins.at("sample.sampler")) ==
          std::string("default: usual with objective ") + row.objective);
    CHECK(loaded.config.sample.steps == row.steps);
    CHECK(text_of(loaded.origins.at("sample.steps")) == std::string("default: usual with ") + row.sampler);
  }
  const LoadedConfig given = read(runnable, {"diffusion.objective=epsilon", "model.learn_sigma=false",
                                             "sample.sampler=ddim", "sample.steps=7"});
  CHECK_FALSE(dit::options_of(given.config).model.learn_sigma);
  CHECK(dit::options_of(given.config).sampler.sampler == dtk::SamplerKind::ddim);
  CHECK(given.config.sample.steps == 7);
  CHECK(text_of(given.origins.at("sample.sampler")) == "--set");
  CHECK(dit::options_of(read(runnable, {"diffusion.objective=v", "model.learn_sigma=true"}).config)
            .model.learn_sigma);
}

TEST_CASE("config reader: steps that nobody wrote follow respacing, and the diffusion where it is short") {
  const LoadedConfig spaced = read(runnable, {"diffusion.objective=v", "sample.respacing=10,15,20"});
  CHECK(spaced.config.sample.steps == 45);
  CHECK(dit::options_of(spaced.config).sampler.respacing == "10,15,20");
  CHECK(text_of(spaced.origins.at("sample.steps")) == "default: what sample.respacing = \"10,15,20\" gives");
  CHECK(read(runnable, {"diffusion.objective=v", "sample.respacing=ddim50", "sample.steps=50"})
            .config.sample.steps == 50);
  const LoadedConfig shorter = read(runnable, {"diffusion.objective=epsilon", "diffusion.steps=100"});
  CHECK(shorter.config.sample.steps == 100);
  CHECK(text_of(shorter.origins.at("sample.steps")) == "default: all that the diffusion has");
}

TEST_CASE("config reader: what was written and has no use is refused") {
  CHECK(error_in(runnable + "schedule.kind = \"constant\"\nschedule.final = 0.5") ==
        "base.toml:4:18: schedule.final has no use with schedule.kind = \"constant\"; remove it (what "
        "base.toml sets is taken back with --set schedule.final=default), or change schedule.kind");
  CHECK(read(runnable + "schedule.kind = \"constant\"").config.schedule.kind == dtk::ScheduleKind::constant);
  CHECK(error_in(runnable + "sample.guidance = 1\nsample.cfg_channels = 3") ==
        "base.toml:4:23: sample.cfg_channels has no use with sample.guidance = 1, which guides nothing; "
        "remove it (what base.toml sets is taken back with --set sample.cfg_channels=default), or raise "
        "sample.guidance");
}

TEST_CASE("config reader: dotted keys and inline tables") {
  const LoadedConfig loaded = read(
      "train = {steps = 3, seed = 7}\n"
      "model.name = \"DiT-S/4\"\n"
      "policies = {ema = {decay = 0.99}}\n");
  CHECK(loaded.config.train.seed == 7);
  CHECK(loaded.config.policies.ema.decay == 0.99);
  CHECK(text_of(loaded.origins.at("policies.ema.decay")) == "base.toml:3");
}

TEST_CASE("config reader: unknown keys name the nearest known one") {
  CHECK(error_in("[data]\nbacth = 16") == "base.toml:2:1: unknown key data.bacth; did you mean data.batch?");
  CHECK(error_in("[train]\nbatch = 16") ==
        "base.toml:2:1: unknown key train.batch; did you mean data.batch?");
  CHECK(error_in("lr = 1") == "base.toml:1:1: unknown key lr; did you mean optimizer.lr?");
  CHECK(error_in("[optimizer]\nBeta = 1") ==
        "base.toml:2:1: unknown key optimizer.Beta; did you mean optimizer.beta1 or optimizer.beta2?");
  CHECK(error_in("[data]\nseed = 1") ==
        "base.toml:2:1: unknown key data.seed; did you mean train.seed or sample.seed?");
  CHECK(error_in("policies.decay = 1") ==
        "base.toml:1:10: unknown key policies.decay; did you mean policies.ema.decay?");
  CHECK(error_in("[schedule]\nwavelength = 1") ==
        "base.toml:2:1: unknown key schedule.wavelength; known keys of [schedule]: kind, warmup, final");
  CHECK(error_in("wavelength = 1") == "base.toml:1:1: unknown key wavelength; known tables: " + all_tables);
  CHECK(error_in("data.\"batch size\" = 1") ==
        "base.toml:1:6: unknown key data.\"batch size\"; known keys of [data]: kind, samples, on_corrupt, "
        "fingerprint, allow_change, validation, batch, drop_last, order, prefetch, threads, images, labels, "
        "if_missing, folder, convert, strict_folder, latents, "
        "latent_shift, latent_scale, flip, "
        "frames, held_out, normalization");
  CHECK(error_in("\"data.batch\" = 1") ==
        "base.toml:1:1: unknown key \"data.batch\"; did you mean data.batch?");
  CHECK(error_in("[train.schedule]\nwarmup = 1") ==
        "base.toml:1:8: unknown key train.schedule; known keys of [train]: model, parts, out, seed, threads, "
        "steps, "
        "epochs, seconds, "
        "accumulate, log_every, checkpoint_every, sample_every, keep_checkpoints, validate_every, "
        "validate_ema, on_not_finite, most_skipped, slow_step, allow_thread_change, init_from, init_key");
}

TEST_CASE("config reader: a table that had another name is refused with today's") {
  CHECK(error_in("[train]\nmodel = \"diffusion_planner\"\n[planner]\npreset = \"H\"") ==
        "base.toml:3:2: unknown table [planner]; it is called [diffusion_planner] now");
  CHECK(error_in("[planner.loss]\nego = 1") ==
        "base.toml:1:2: unknown table [planner]; it is called [diffusion_planner] now");
  CHECK(error_in("planner.preset = \"H\"") ==
        "base.toml:1:1: unknown table [planner]; it is called [diffusion_planner] now");
  CHECK(
      error_of_set("planner.loss.ego=1") ==
      "--set planner.loss.ego=1: unknown key planner.loss.ego; it is called diffusion_planner.loss.ego now");
}

TEST_CASE("config reader: unknown tables, policies that do not exist among them") {
  CHECK(error_in("[trian]\nsteps = 1") == "base.toml:1:2: unknown table [trian]; did you mean [train]?");
  CHECK(error_in("[ema]\ndecay = 1") == "base.toml:1:2: unknown table [ema]; did you mean [policies.ema]?");
  CHECK(error_in("[policies.emma]\ndecay = 1") ==
        "base.toml:1:11: unknown table [policies.emma]; did you mean [policies.ema]?");
  CHECK(error_in("[network]\n") == "base.toml:1:2: unknown table [network]; known tables: " + all_tables);
  CHECK(error_in("[policies.offload]\nenabled = true") ==
        "base.toml:1:11: unknown table [policies.offload]; known tables: " + all_tables);
  CHECK(error_in("[checkpoint]\nevery = 1") ==
        "base.toml:1:2: unknown table [checkpoint]; did you mean [policies.checkpoint]?");
}

TEST_CASE("config reader: wrong types say what was seen and what is wanted") {
  CHECK(error_in("[data]\nbatch = \"16\"") ==
        "base.toml:2:9: data.batch = \"16\" is a string; wanted: an integer in [1, inf)");
  CHECK(error_in("[data]\nbatch = 16.0") ==
        "base.toml:2:9: data.batch = 16.0 is a float; wanted: an integer in [1, inf)");
  CHECK(error_in("[data]\nbatch = true") ==
        "base.toml:2:9: data.batch = true is a boolean; wanted: an integer in [1, inf)");
  CHECK(error_in("[data]\nbatch = [16, 32]") ==
        "base.toml:2:9: data.batch = [16, 32] is an array; wanted: an integer in [1, inf)");
  CHECK(error_in("[train]\nseconds = 07:32:00") ==
        "base.toml:2:11: train.seconds is a date or time; wanted: a number in (0, inf)");
  CHECK(error_in("[train]\nout = 3") == "base.toml:2:7: train.out = 3 is an integer; wanted: a string");
  CHECK(error_in("[train]\nallow_thread_change = 1") ==
        "base.toml:2:23: train.allow_thread_change = 1 is an integer; wanted: true or false");
  CHECK(error_in("[schedule]\nkind = 3") ==
        "base.toml:2:8: schedule.kind = 3 is an integer; wanted: one of cosine | constant | epochs");
}

TEST_CASE("config reader: a table where a value is wanted, and the reverse") {
  CHECK(error_in("[data.batch]\nsize = 1") ==
        "base.toml:1:7: data.batch is a table; wanted: an integer in [1, inf)");
  CHECK(error_in("data.batch = {size = 1}") ==
        "base.toml:1:6: data.batch is a table; wanted: an integer in [1, inf)");
  CHECK(error_in("train = 3") == "base.toml:1:9: train = 3 is an integer; wanted: a table, written [train]");
  CHECK(error_in("policies.ema = true") ==
        "base.toml:1:16: policies.ema = true is a boolean; wanted: a table, written [policies.ema]");
  CHECK(error_in("policies = true") ==
        "base.toml:1:12: policies = true is a boolean; wanted: a table, such as [policies.precision]");
  CHECK(error_in("[[train]]\nsteps = 1").find("train is an array; wanted: a table, written [train]") !=
        std::string::npos);
}

TEST_CASE("config reader: ranges and choices") {
  CHECK(error_in("[data]\nbatch = 0") == "base.toml:2:9: data.batch = 0 is out of range; allowed: [1, inf)");
  CHECK(error_in("[train]\nsteps = 0") ==
        "base.toml:2:9: train.steps = 0 is out of range; allowed: [1, inf)");
  CHECK(error_in("[optimizer]\nbeta2 = 1") ==
        "base.toml:2:9: optimizer.beta2 = 1 is out of range; allowed: [0, 1)");
  CHECK(error_in("[optimizer]\nlr = 0.0") ==
        "base.toml:2:6: optimizer.lr = 0.0 is out of range; allowed: (0, inf)");
  CHECK(error_in("[optimizer]\nlr = nan") ==
        "base.toml:2:6: optimizer.lr = nan is out of range; allowed: (0, inf)");
  CHECK(error_in("[optimizer]\nlr = inf") ==
        "base.toml:2:6: optimizer.lr = inf is out of range; allowed: (0, inf)");
  CHECK(error_in("[schedule]\nfinal = -inf") ==
        "base.toml:2:9: schedule.final = -inf is out of range; allowed: [0, 1]");
  CHECK(error_in("[policies.ema]\ndecay = -0.1") ==
        "base.toml:2:9: policies.ema.decay = -0.1 is out of range; allowed: [0, 1)");
  CHECK(error_in("[policies.ema]\ndecay = 1") ==
        "base.toml:2:9: policies.ema.decay = 1 is out of range; allowed: [0, 1)");
  CHECK(error_in("[policies.ema]\ndecay = nan") ==
        "base.toml:2:9: policies.ema.decay = nan is out of range; allowed: [0, 1)");
  CHECK(error_in("[policies.checkpoint]\nevery = 0") ==
        "base.toml:2:9: policies.checkpoint.every = 0 is out of range; allowed: [1, inf)");
  CHECK(error_in("[diffusion]\ntime = \"normal\"") ==
        "base.toml:2:8: diffusion.time = \"normal\" is not a choice; allowed: uniform | logit_normal");
  CHECK(error_in("[diffusion]\ntime = \"uniform | logit_normal\"") ==
        "base.toml:2:8: diffusion.time = \"uniform | logit_normal\" is not a choice; allowed: uniform | "
        "logit_normal");
  CHECK(read(runnable + "schedule.final = 1\noptimizer.beta1 = 0").config.schedule.final == 1.0);
}

TEST_CASE("config reader: all mistakes are reported together") {
  CHECK(error_in("[train]\nsteps = 0\n[data]\nbatch = 0\nbacth = 3\n[modle]\ndepth = 3",
                 {"data.kind=idx=", "optimizer.lr=0"}) ==
        "base.toml:2:9: train.steps = 0 is out of range; allowed: [1, inf)\n"
        "base.toml:4:9: data.batch = 0 is out of range; allowed: [1, inf)\n"
        "base.toml:5:1: unknown key data.bacth; did you mean data.batch?\n"
        "base.toml:6:2: unknown table [modle]; did you mean [model]?\n"
        "--set data.kind=idx=: data.kind = \"idx=\" is not a choice; allowed: idx | images | latents | "
        "synthetic "
        "| frames | conversations | scenes\n"
        "--set optimizer.lr=0: optimizer.lr = 0 is out of range; allowed: (0, inf)");
  std::string many = "[data]\n";
  for (int i = 0; i < 25; ++i) many += "x" + std::to_string(i) + "abcdefgh = 1\n";
  const std::string message = error_in(many);
  CHECK(std::count(message.begin(), message.end(), '\n') == 20);
  CHECK(message.ends_with("\nand 5 more like these"));
}

TEST_CASE("config reader: syntax errors keep the parser's message") {
  CHECK(error_in("[data]\nbatch = 1\nbatch = 2") ==
        "base.toml:3:9: not valid TOML: Error while parsing key-value pair: cannot redefine existing integer "
        "'batch'");
  CHECK_THAT(error_in("[data\nbatch = 1"), Catch::Matchers::StartsWith("base.toml:1:6: not valid TOML: "));
  CHECK_THAT(error_in("[data]\nbatch = 99999999999999999999"),
             Catch::Matchers::StartsWith("base.toml:2:29: not valid TOML: "));
  CHECK_THAT(error_in("a = \"\xff\""), Catch::Matchers::StartsWith("base.toml:1:5: not valid TOML: "));
  CHECK(error_text<ConfigError>([] { parse_config("", "\xff.toml", {}); }) ==
        "\xff.toml: the name of this file is not UTF-8; rename it");
}

TEST_CASE("config reader: what the parser would not survive is refused before it") {
  const auto parts = [](int count) {
    std::string text = "a";
    for (int i = 1; i < count; ++i) text += ".a";
    return text;
  };
  const std::string many = ": not valid TOML: a key of more than 16 parts";
  CHECK(error_in(parts(150'000) + " = 1") == "base.toml:1:32" + many);
  CHECK(error_in("[" + parts(200'000) + "]") == "base.toml:1:33" + many);
  CHECK(error_in("[train]\nx = { " + parts(17) + " = 1 }") == "base.toml:2:38" + many);
  CHECK_THAT(error_in(parts(16) + " = 1"), Catch::Contains("unknown table [a]"));
  const std::string beyond = ": not valid TOML: a character beyond ASCII outside of a text; put it in quotes";
  CHECK(error_in("\u00e9") == "base.toml:1:1" + beyond);
  CHECK(error_in("[train]\nsteps = 1 # \u00e9\n \u00e9 = 1") == "base.toml:3:2" + beyond);
  CHECK(error_in("[#x]") == "base.toml:1:2: not valid TOML: a comment within a table's header");
  // A text of several lines may end in one or two of its own quotes; what follows it is looked at.
  for (const std::string quotes : {"\"\"\"", "\"\"\"\"", "\"\"\"\"\"", "'''", "''''", "'''''"}) {
    INFO(quotes);
    CHECK_THAT(error_in("a = {b=" + quotes.substr(0, 3) + "x" + quotes + ", " + parts(20'000) + " = 1}"),
               Catch::Contains(many.substr(2)));
  }
  CHECK_THAT(error_in(std::string(1 << 20, ' ') + "a"), Catch::Contains("a text of more than 1048576 bytes"));
  CHECK(error_in("[train\n#x\n]") != "base.toml:2:1: not valid TOML: a comment within a table's header");
  CHECK(error_in("[data]\n" + std::string(900'000, 'b') + " = 1") ==
        "base.toml:2:1025: not valid TOML: a key of more than 1024 bytes");
  CHECK(error_in("[data]\n\"" + std::string(900'000, 'b') + "\" = 1") ==
        "base.toml:2:900004: not valid TOML: a key of more than 1024 bytes");
}

TEST_CASE("config reader: what only looks like it is read") {
  const std::string text =
      "\xef\xbb\xbf"
      "# a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r \u00e9\r\n[train] # [ \u00e9\r\nsteps = 1_0\r\n"
      "out = \"\"\"\\\n  a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r # [\u00e9\"\"\"\n[data]\nimages = 'x\\'\n"
      "labels = \"a\\\"#[\"\n[model]\nname = 'DiT-S/4'\n[optimizer]\nlr = 1.5e-3 # ok\n";
  const LoadedConfig loaded = parse_config(text, "base.toml", {});
  CHECK(loaded.config.train.steps == 10);
  CHECK(loaded.config.train.out == "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r # [\u00e9");
  CHECK(loaded.config.optimizer.lr == 1.5e-3);
  const std::string path(4000, 'x');
  CHECK(
      parse_config("[train]\nsteps = 1\nout = \"" + path + "\"\n[model]\nname = \"DiT-S/4\"", "base.toml", {})
          .config.train.out == path);
}

TEST_CASE("config reader: files") {
  const dtk::test::TemporaryFolder folder;
  const auto load = [](const std::filesystem::path& file) {
    return load_config(dtk::posix_file_system(), file, {"data.batch=4"});
  };
  const auto missing = folder / "none.toml";
  CHECK(error_text<ConfigError>([&] { load(missing); }) ==
        missing.string() + ": this file does not exist; give an existing file with --config");
  CHECK_THAT(error_text<ConfigError>([&] { load(folder.path()); }),
             Catch::Matchers::Contains(folder.path().string()));

  const auto file = folder.write("base.toml", runnable);
  const LoadedConfig loaded = load(file);
  CHECK(loaded.config.data.batch == 4);
  CHECK(text_of(loaded.origins.at("train.steps")) == file.string() + ":1");
}

TEST_CASE("config reader: overrides") {
  CHECK(read(runnable + "data.batch = 8", {"data.batch = 4"}).config.data.batch == 4);
  CHECK(dit::options_of(read(runnable, {"model.name=DiT-B/2"}).config).model.name == dtk::models::DitPreset::b_2);
  CHECK(dit::options_of(read(runnable, {"model.name=\"DiT-B/2\""}).config).model.name == dtk::models::DitPreset::b_2);
  CHECK(error_in(runnable, {"train.out=\"\""}) ==
        "--set train.out=\"\": train.out is empty; name a folder of its own for the run, e.g. \"runs/mine\"");
  CHECK(read(runnable, {"policies.ema.enabled=default"}).config.policies.ema.enabled == Enabled::by_default);
  CHECK(read(runnable, {"policies.ema={decay=0.5}"}).config.policies.ema.decay == 0.5);
  CHECK(error_in(runnable + "data.batch = 0", {"data.batch=4"}) ==
        "base.toml:3:14: data.batch = 0 is out of range; allowed: [1, inf)");
}

TEST_CASE("config reader: the bare word default takes back what the file says of any key") {
  const std::string file =
      runnable + "train.seconds = 60\ntrain.out = \"a\"\ndata.batch = 8\npolicies.ema.enabled = false\n";
  const LoadedConfig loaded =
      read(file, {"train.seconds=default", "train.out = default", "data.batch=default",
                  "policies.ema.enabled=default", "train.steps=7"});
  const dtk::RunConfig defaults;
  CHECK_FALSE(loaded.config.train.seconds);
  CHECK(loaded.config.train.steps == 7);
  CHECK(loaded.config.train.out == defaults.train.out);
  CHECK(loaded.config.data.batch == defaults.data.batch);
  CHECK(loaded.config.policies.ema.enabled == Enabled::by_default);
  CHECK(text_of(loaded.origins.at("data.batch")) == "--set");
  CHECK(loaded.locations.count("data.batch") == 0);
  CHECK(loaded.locations.at("train.steps") == "--set train.steps=7");
  const std::string printed = print_config(loaded);
  CHECK(printed.find("\nbatch = 16  # --set\n") != std::string::npos);
  CHECK(printed.find("\n# seconds is not set  # --set\n") != std::string::npos);
  CHECK(read(printed).config == loaded.config);

  CHECK(read(runnable, {"train.out=\"default\""}).config.train.out == "default");
  CHECK(read(runnable + "train.out = \"default\"").config.train.out == "default");
  for (const auto& [key, origin] : read(runnable).origins) {
    INFO(key);
    if (key != "train.steps" && key != "model.name") {
      CHECK(read(runnable, {key + "=default"}).config == read(runnable).config);
    }
  }
  CHECK(error_in(runnable, {"train.steps=default"}) ==
        "base.toml: none of train.steps, train.epochs and train.seconds is set; set at least one of them, so "
        "that the run "
        "ends");
  CHECK(read(runnable, {"data.batch=4", "data.batch=default"}).config.data.batch == 16);
  CHECK(error_of_set("data.bacth=default") ==
        "--set data.bacth=default: unknown key data.bacth; did you mean data.batch?");
  CHECK(error_of_set("policies.chekpoint.enabled=default") ==
        "--set policies.chekpoint.enabled=default: unknown key policies.chekpoint.enabled; did you mean "
        "policies.checkpoint.enabled?");
  CHECK(error_of_set("policies.ema=default") ==
        "--set policies.ema=default: default is not a TOML value; wanted: a table");
}

TEST_CASE("config reader: a default that is taken back to has no effect where it had none") {
  const std::string no_ema = runnable + "policies.ema.enabled = false\nsample.ema = false\n";
  const LoadedConfig loaded = read(no_ema, {"sample.ema=default"});
  CHECK(read(print_config(loaded)).config == loaded.config);
}

TEST_CASE("config reader: wrong overrides") {
  CHECK(error_of_set("data.batch=0") ==
        "--set data.batch=0: data.batch = 0 is out of range; allowed: [1, inf)");
  CHECK(error_of_set("data.bacth=0") ==
        "--set data.bacth=0: unknown key data.bacth; did you mean data.batch?");
  CHECK(error_of_set("data.bacth=x y") ==
        "--set data.bacth=x y: unknown key data.bacth; did you mean data.batch?");
  CHECK(error_of_set("data.batch") ==
        "--set data.batch: not of the form key=value; write for example --set data.batch=16");
  CHECK(error_of_set("=3") == "--set =3: not of the form key=value; write for example --set data.batch=16");
  CHECK(error_of_set("data.batch=") ==
        "--set data.batch=: data.batch has no value; wanted: an integer in [1, inf)");
  CHECK(error_of_set("data.batch=many") ==
        "--set data.batch=many: many is not a TOML value; wanted: an integer in [1, inf)");
  CHECK(error_of_set("model.learn_sigma=True") ==
        "--set model.learn_sigma=True: True is not a TOML value; wanted: true or false");
  CHECK(error_of_set("train.out=\"a") == "--set train.out=\"a: \"a is not a TOML value; wanted: a string");
  CHECK(error_of_set("train.out=[7]") ==
        "--set train.out=[7]: train.out = [7] is an array; wanted: a string");
  CHECK(error_of_set("train.out=\xff") == "--set train.out=\xff: \xff is not a TOML value; wanted: a string");
  CHECK(error_of_set("data.kind=mnist") ==
        "--set data.kind=mnist: data.kind = \"mnist\" is not a choice; allowed: idx | images | latents | "
        "synthetic | frames | conversations | scenes");
  CHECK(error_of_set("train=3") ==
        "--set train=3: train = 3 is an integer; wanted: a table, written [train]");
  CHECK(error_of_set("policies.ema=on") == "--set policies.ema=on: on is not a TOML value; wanted: a table");
  CHECK(error_of_set("data.batch=1\ntrain.seed=2") ==
        "--set data.batch=1\\ntrain.seed=2: 1\\ntrain.seed=2 is not a TOML value; wanted: an integer in [1, "
        "inf)");
}

TEST_CASE("config reader: of two overrides of one key the last wins, and that is said") {
  const LoadedConfig batch = read(runnable, {"data.batch=4", "data.batch=8", "data.batch=2"});
  CHECK(batch.config.data.batch == 2);
  CHECK(batch.notes == std::vector<std::string>{"--set data.batch=8 takes the place of --set data.batch=4",
                                                "--set data.batch=2 takes the place of --set data.batch=8"});
  const LoadedConfig decay = read(runnable, {"policies.ema={decay=0.5}", "policies.ema.decay=0.6"});
  CHECK(decay.config.policies.ema.decay == 0.6);
  CHECK(decay.notes == std::vector<std::string>{
                           "--set policies.ema.decay=0.6 takes the place of --set policies.ema={decay=0.5}"});
  CHECK(read(runnable, {"data.batch=4"}).notes.empty());
}
