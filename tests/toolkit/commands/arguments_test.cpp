#include "toolkit/commands/arguments.h"

#include <sstream>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/core/errors.h"

using dtk::ConfigError;
using dtk::SampleArguments;
using dtk::TrainArguments;
using dtk::test::error_text;
using Words = std::vector<const char*>;

namespace {

TrainArguments train(Words words) {
  words.insert(words.begin(), "dit-train");
  return dtk::parse_train_arguments(static_cast<int>(words.size()), words.data());
}

using Own = std::map<std::string, dtk::SampleArgument::Value>;

SampleArguments sample(Words words) {
  words.insert(words.begin(), "dit-sample");
  return dtk::parse_sample_arguments(static_cast<int>(words.size()), words.data());
}

std::string train_error(const Words& words) {
  return error_text<ConfigError>([&] { train(words); });
}

/// The error of an otherwise complete dit-sample line.
std::string sample_error(const Words& more) {
  Words words = {"--checkpoint", "c", "--classes", "0", "--out", "a.png"};
  words.insert(words.end(), more.begin(), more.end());
  return error_text<ConfigError>([&] { sample(words); });
}

void check_fits_one_screen(const std::string& help) {
  std::istringstream lines(help);
  std::string line, last;
  int count = 0;
  while (std::getline(lines, line)) {
    last = line;
    ++count;
    INFO(line);
    CHECK(line.size() <= 80);
  }
  CHECK(count <= 24);
  CHECK(last.starts_with("Example: dit-"));
}

}  // namespace

TEST_CASE("dit-train: arguments") {
  const TrainArguments minimal = train({"--config", "base.toml"});
  CHECK(minimal.config == "base.toml");
  CHECK(minimal.set.empty());
  CHECK(minimal.resume.empty());
  CHECK(minimal.device == "auto");
  CHECK_FALSE(minimal.print_config);
  CHECK_FALSE(minimal.help);
  CHECK_FALSE(minimal.version);

  const TrainArguments all =
      train({"--set", "data.batch=8", "--config=a.toml", "--set=policies.ema={decay=0.9, warmup=true}",
             "--resume", "latest", "--device", "cuda:12", "--print-config"});
  CHECK(all.config == "a.toml");
  CHECK(all.set == std::vector<std::string>{"data.batch=8", "policies.ema={decay=0.9, warmup=true}"});
  CHECK(all.resume == "latest");
  CHECK(all.device == "cuda:12");
  CHECK(all.print_config);
}

TEST_CASE("dit-train: a run that goes on has its configuration") {
  CHECK(train({"--resume", "runs/a"}).config.empty());
  CHECK(train({"--resume", "runs/a"}).resume == "runs/a");
  CHECK(train({"--resume", "runs/a", "--config", "b.toml"}).config == "b.toml");
  CHECK(train({"--config", "base", "--resume", "auto"}).resume == "auto");
  CHECK(train_error({"--resume", "auto"}) ==
        "--resume auto: what begins where there is no checkpoint? Give --config FILE");
  const TrainArguments latest = train({"--resume", "latest", "--out", "runs/a"});
  CHECK(latest.config.empty());
  CHECK(latest.resume == "runs/a");
  CHECK(latest.set == std::vector<std::string>{"train.out=\"runs/a\""});
  CHECK(train({"--config", "b.toml", "--set", "train.steps=3", "--out", "c"}).set ==
        std::vector<std::string>{"train.steps=3", "train.out=\"c\""});
  CHECK(
      train_error({"--resume", "latest"}) ==
      "--resume latest: of which run? Name it, as in --resume runs/mine, or give --out DIR or --config FILE");
}

TEST_CASE("dit-train: help and version need nothing else") {
  CHECK(train({"--help"}).help);
  CHECK(train({"-h"}).help);
  CHECK(train({"--version"}).version);
  CHECK(train({"--help", "--wrong"}).help);
}

TEST_CASE("dit-train: wrong arguments") {
  const Words config = {"--config", "a.toml"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), config.begin(), config.end());
    return train_error(more);
  };
  CHECK(train_error({}) == "--config FILE is missing: write for example dit-train --config base");
  CHECK(train_error({"--confg", "a.toml"}) == "--confg: unknown option; did you mean --config?");
  CHECK(train_error({"--confg=a.toml"}) == "--confg=a.toml: unknown option; did you mean --config?");
  CHECK(with({"--batch", "3"}) == "--batch: unknown option; see dit-train --help");
  CHECK(with({"-x"}) == "-x: unknown option; see dit-train --help");
  for (const char* odd : {"-", "--=x", "---config", "--c", "-=", "-config"}) {
    INFO(odd);
    CHECK_THAT(with({odd}), Catch::Matchers::Contains("unknown option"));
  }
  CHECK(with({"b.toml"}) == "b.toml: an argument that belongs to no option; see dit-train --help");
  CHECK(with({"--", "b.toml"}) == "b.toml: an argument that belongs to no option; see dit-train --help");
  CHECK(with({"--config", "b.toml"}) == "--config: given 2 times; give it once");
  CHECK(with({"--resume", "latest", "--resume", "x"}) == "--resume: given 2 times; give it once");
  CHECK(with({"--set"}) == "--set: needs a value");
  CHECK(with({"--resume="}) == "--resume: needs a value");
  CHECK(train_error({"--config", "--set", "a=1"}) == "--config: needs a value; seen: --set");
  CHECK(with({"--print-config=no"}) == "--print-config=no: takes no value");
}

TEST_CASE("dit-train: devices") {
  for (const char* device : {"auto", "cpu", "cuda", "cuda:0"}) {
    CHECK(train({"--config", "a", "--device", device}).device == device);
  }
  for (const std::string device : {"cuda:x", "cuda:", "gpu", "CPU", "cuda:-1", "cuda:1000", "cpu:0"}) {
    CHECK(train_error({"--config", "a", "--device", device.c_str()}) ==
          "--device " + device + ": no such device; allowed: auto, cpu, cuda, or cuda:INDEX such as cuda:0");
  }
}

TEST_CASE("dit-sample: arguments") {
  const SampleArguments minimal = sample({"--checkpoint", "c", "--classes", "3", "--out", "a.png"});
  CHECK(minimal.checkpoint == "c");
  CHECK(minimal.weights.empty());
  CHECK(minimal.config.empty());
  CHECK(minimal.own == Own{{"classes", std::string("3")}});
  CHECK_FALSE(minimal.raw);
  CHECK(minimal.device == "auto");
  CHECK_FALSE(minimal.threads);

  const SampleArguments all = sample({"--weights",      "w",     "--config",    "c.toml",
                                      "--classes",      "0,2,2", "--guidance",  "1.5",
                                      "--cfg-channels", "3",     "--steps",     "10",
                                      "--seed",         "7",     "--per-class", "8",
                                      "--device",       "cpu",   "--out",       "a/b.safetensors",
                                      "--threads",      "2",     "--sampler",   "ddim",
                                      "--respacing",    "5,5",   "--eta",       "0.5",
                                      "--clip-x0",      "true"});
  CHECK(all.weights == "w");
  CHECK(all.config == "c.toml");
  CHECK(all.own == Own{{"classes", std::string("0,2,2")},
                       {"guidance", 1.5},
                       {"cfg-channels", 3},
                       {"steps", 10},
                       {"sampler", "ddim"},
                       {"respacing", "5,5"},
                       {"eta", 0.5},
                       {"clip-x0", true},
                       {"seed", 7},
                       {"per-class", 8}});
  CHECK(sample({"--checkpoint", "c", "--classes", "3", "--out", "a.png", "--clip-x0=false"})
            .given<bool>("clip-x0") == false);
  CHECK(all.out == "a/b.safetensors");
  CHECK(all.device == "cpu");
  CHECK(all.threads == 2);
  CHECK(sample({"--checkpoint", "c", "--classes", "3", "--out", "a.png", "--raw"}).raw);
  CHECK(sample({"-h"}).help);
  CHECK(sample({"--version"}).version);
}

TEST_CASE("dit-sample: what must be given") {
  const auto error = [](const Words& words) { return error_text<ConfigError>([&] { sample(words); }); };
  CHECK(error({"--classes", "0", "--out", "a.png"}) ==
        "give exactly one of --checkpoint DIR and --weights FILE; neither is given");
  CHECK(sample_error({"--weights", "w"}) ==
        "give exactly one of --checkpoint DIR and --weights FILE; both are given");
  const std::string of_two =
      "give exactly one of --classes LIST, for images and latents, --frames LIST, for the driving "
      "model, --ask QUESTIONS, for LLaVA, and --images DIR, for VGGT; ";
  CHECK(error({"--checkpoint", "c", "--out", "a.png"}) == of_two + "none is given");
  CHECK(sample_error({"--frames", "f"}) == of_two + "several are given");
  CHECK(error({"--checkpoint", "c", "--classes", "0"}) ==
        "--out FILE is missing: write for example --out grid.png");
  CHECK(error({"--weights", "w", "--classes", "0", "--out", "a.png", "--raw"}) ==
        "--raw: has no effect with --weights; choose one of the sets of weights in a file with --key");
  CHECK(error({"--checkpoint", "c", "--classes", "0", "--out", "a.png", "--key", "ema"}) ==
        "--key: has no effect with --checkpoint; --raw takes its raw weights instead of the EMA's");
  CHECK(sample({"--weights", "w", "--classes", "0", "--out", "a.png", "--key", "model"}).key == "model");
  for (const std::string out : {"a.jpg", ".png", "png"}) {
    CHECK(error({"--checkpoint", "c", "--classes", "0", "--out", out.c_str()}) ==
          "--out " + out + ": unknown kind of file; allowed: a name that ends in .png, .safetensors or .npy");
  }
}

TEST_CASE("dit-sample: frames of the driving model") {
  const SampleArguments all = sample({"--checkpoint", "c", "--frames", "list.json", "--out", "drawn", "--raw",
                                      "--steps", "5", "--threads", "2", "--device", "cpu"});
  CHECK(all.own == Own{{"frames", "list.json"}, {"steps", 5}});
  CHECK(all.out == "drawn");
  CHECK(all.raw);
  CHECK(all.threads == 2);
  CHECK(sample({"--weights", "w", "--frames", "f", "--out", "a.png", "--key", "k"}).key == "k");

  const auto error = [](const Words& more) {
    Words words = {"--checkpoint", "c", "--frames", "f"};
    words.insert(words.end(), more.begin(), more.end());
    return error_text<ConfigError>([&] { sample(words); });
  };
  CHECK(error({}) == "--out FOLDER is missing: write for example --out drawn");
  CHECK(error({"--out="}) == "--out: needs a value");
  const std::vector<Words> useless = {{"--per-class", "2"},  {"--guidance", "2"},  {"--cfg-channels", "3"},
                                      {"--sampler", "ddim"}, {"--respacing", "5"}, {"--eta", "0.5"},
                                      {"--clip-x0", "true"}, {"--seed", "1"}};
  for (const Words& option : useless) {
    CHECK(error({"--out", "drawn", option[0], option[1]}) ==
          std::string(option[0]) + " " + option[1] +
              ": has no use with --frames, whose trajectories are drawn without classes, guidance or noise; "
              "remove it");
  }
}

TEST_CASE("dit-export: arguments") {
  const auto exported = [](Words words) {
    words.insert(words.begin(), "dit-export");
    return dtk::parse_export_arguments(static_cast<int>(words.size()), words.data());
  };
  const auto error = [&](const Words& words) { return error_text<ConfigError>([&] { exported(words); }); };
  const auto arguments = exported({"--checkpoint", "c", "--out", "a.pt", "--key", "k", "--config", "f"});
  CHECK(arguments.checkpoint == "c");
  CHECK(arguments.out == "a.pt");
  CHECK(arguments.key == "k");
  CHECK(arguments.config == "f");
  CHECK_FALSE(arguments.raw);
  CHECK(exported({"--checkpoint", "c", "--out", "a.safetensors", "--raw"}).key == "model");
  CHECK(exported({"-h"}).help);
  CHECK(exported({"--version"}).version);
  CHECK(error({"--out", "a.pt"}) ==
        "--checkpoint is missing: write for example dit-export --checkpoint runs/mine --out mine.pt");
  CHECK(error({"--checkpoint", "c"}) == "--out FILE is missing: write for example --out mine.safetensors");
  CHECK(error({"--checkpoint", "c", "--out", "a.pth"}) ==
        "--out a.pth: unknown kind of file; allowed: a name that ends in .safetensors or .pt");
  CHECK(error({"--checkpoint", "c", "--out", "a.pt", "--raw", "--key", "ema"}) ==
        "--raw: is short for --key model; give one of them");
  CHECK(error({"--weights", "c"}) == "--weights: unknown option; see dit-export --help");
}

TEST_CASE("dit-sample: wrong numbers") {
  CHECK(sample_error({"--steps", "0"}) ==
        "--steps 0: \"0\" is not allowed; wanted: an integer in [1, 10000]");
  CHECK(sample_error({"--steps", "2.5"}) ==
        "--steps 2.5: \"2.5\" is not allowed; wanted: an integer in [1, 10000]");
  CHECK(
      sample_error({"--seed", "99999999999999999999"}) ==
      "--seed 99999999999999999999: \"99999999999999999999\" is not allowed; wanted: an integer in [0, inf)");
  CHECK(sample_error({"--guidance", "nan"}) ==
        "--guidance nan: \"nan\" is not allowed; wanted: a number in [1, 100]");
  CHECK(sample_error({"--guidance", "0.5"}) ==
        "--guidance 0.5: \"0.5\" is not allowed; wanted: a number in [1, 100]");
  CHECK(sample_error({"--cfg-channels", "-3"}) ==
        "--cfg-channels -3: \"-3\" is not allowed; wanted: an integer in [0, inf)");
  CHECK(sample_error({"--per-class", "0"}) ==
        "--per-class 0: \"0\" is not allowed; wanted: an integer in [1, 1024]");
  CHECK(sample_error({"--threads", "0"}) ==
        "--threads 0: \"0\" is not allowed; wanted: an integer in [1, 1024]");
  CHECK(sample_error({"--eta", "1.5"}) == "--eta 1.5: \"1.5\" is not allowed; wanted: a number in [0, 1]");
  CHECK(sample_error({"--sampler", "DDIM"}) ==
        "--sampler DDIM: \"DDIM\" is not allowed; wanted: one of euler | heun | ddpm | ddim");
  CHECK(sample_error({"--clip-x0", "yes"}) == "--clip-x0 yes: \"yes\" is not allowed; wanted: true or false");
  CHECK(sample_error({"--step", "3"}) == "--step: unknown option; did you mean --steps?");
  CHECK(sample_error({"--cfg_channels", "3"}) ==
        "--cfg_channels: unknown option; did you mean --cfg-channels?");
  CHECK(sample_error({"--steps", "3", "--steps", "4"}) == "--steps: given 2 times; give it once");
}

TEST_CASE("help: fits one screen and names every option") {
  check_fits_one_screen(dtk::train_help());
  check_fits_one_screen(dtk::sample_help());
  check_fits_one_screen(dtk::export_help());
  for (const char* option : {"--checkpoint SOURCE", "--out FILE", "--raw", "--key KEY", "--config FILE",
                             "--version", "--help", "Exit codes: 0 done", "Example: dit-export"}) {
    INFO(option);
    CHECK(dtk::export_help().find(option) != std::string::npos);
  }
  for (const char* option :
       {"--config FILE", "--set KEY=VALUE", "--set KEY=default", "--resume RUN|latest", "--device",
        "--print-config", "--version", "--help", "Exit codes: 0 done", "Example: dit-train"}) {
    INFO(option);
    CHECK(dtk::train_help().find(option) != std::string::npos);
  }
  for (const char* option : {"--checkpoint DIR",   "--weights FILE", "--key KEY",
                             "--config FILE",      "--classes LIST", "--guidance SCALE",
                             "--cfg-channels N",   "--steps N",      "--sampler NAME",
                             "--respacing TEXT",   "--eta E",        "--clip-x0",
                             "--seed S",           "--per-class K",  "--raw",
                             "--out FILE",         "--device",       "--threads N",
                             "--version",          "--help",         "Exit codes: 0 done",
                             "Example: dit-sample"}) {
    INFO(option);
    CHECK(dtk::sample_help().find(option) != std::string::npos);
  }
}
