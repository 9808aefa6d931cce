#include "toolkit/commands/arguments.h"

#include <algorithm>

#include "toolkit/commands/given.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

std::string checked_device(const Given& given) {
  const std::string device = given.text("device", "auto");
  if (device == "auto" || device == "cpu" || device == "cuda") return device;
  const bool cuda = device.compare(0, 5, "cuda:") == 0;
  const bool digits = device.size() > 5 && device.size() < 9 &&
                      device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (!cuda || !digits) {
    fail_argument(given.place("device"),
                  "no such device; allowed: auto, cpu, cuda, or cuda:INDEX such as cuda:0");
  }
  return device;
}

bool ends_in(const std::string& text, const std::string& ending) {
  return text.size() > ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

const std::vector<Option>& train_options() {
  static const std::vector<Option> options = {
      {"config", Option::value},      {"set", Option::repeated}, {"resume", Option::value},
      {"device", Option::value},      {"help", Option::flag},    {"version", Option::flag},
      {"print-config", Option::flag},
  };
  return options;
}

const std::vector<Option>& common_sample_options() {
  static const std::vector<Option> options = {
      {"checkpoint", Option::value}, {"weights", Option::value}, {"config", Option::value},
      {"raw", Option::flag},         {"out", Option::value},     {"device", Option::value},
      {"threads", Option::value},    {"help", Option::flag},     {"version", Option::flag},
      {"key", Option::value},
  };
  return options;
}

// Those of all families, each once.
std::vector<Option> sample_options(const std::vector<SampleUsage>& usages) {
  std::vector<Option> options = common_sample_options();
  for (auto usage = usages.begin(); usage != usages.end(); ++usage) {
    for (const SampleArgument& one : usage->arguments) {
      if (std::none_of(usages.begin(), usage, [&](const auto& earlier) { return earlier.has(one.name); }))
        options.push_back({one.name, Option::value});
    }
  }
  return options;
}

const std::vector<Option>& export_options() {
  static const std::vector<Option> options = {
      {"checkpoint", Option::value}, {"config", Option::value}, {"out", Option::value},
      {"raw", Option::flag},         {"key", Option::value},    {"help", Option::flag},
      {"version", Option::flag},
  };
  return options;
}

void check_sources(const Given& given) {
  if (given.has("checkpoint") == given.has("weights")) {
    const std::string seen = given.has("weights") ? "both are" : "neither is";
    throw ConfigError("give exactly one of --checkpoint DIR and --weights FILE; " + seen + " given");
  }
  if (given.has("raw") && given.has("weights")) {
    fail_argument("--raw",
                  "has no effect with --weights; choose one of the sets of weights in a file with --key");
  }
  if (given.has("key") && given.has("checkpoint")) {
    fail_argument("--key",
                  "has no effect with --checkpoint; --raw takes its raw weights instead of the EMA's");
  }
}

// Which one the model draws is known once its configuration is read.
const SampleUsage& wanted_usage(const Given& given, const std::vector<SampleUsage>& usages) {
  std::vector<const SampleUsage*> wanted;
  std::vector<std::string> choices;
  for (const SampleUsage& usage : usages) {
    if (given.has(usage.first())) wanted.push_back(&usage);
    choices.push_back("--" + usage.first() + " " + usage.value + ", " + usage.purpose);
  }
  if (wanted.size() == 1) return *wanted.front();
  const bool of_two = usages.size() == 2;
  const std::string none = of_two ? "neither is" : "none is", several = of_two ? "both are" : "several are";
  throw ConfigError("give exactly one of " + listed(choices, ", and ") + "; " +
                    (wanted.empty() ? none : several) + " given");
}

void check_has_use(const Given& given, const SampleUsage& usage, const std::vector<SampleUsage>& usages) {
  for (const SampleUsage& other : usages) {
    for (const SampleArgument& one : other.arguments) {
      if (!given.has(one.name) || usage.has(one.name)) continue;
      fail_argument(given.place(one.name),
                    "has no use with --" + usage.first() + usage.none_of_others + "; remove it");
    }
  }
}

void check_out(const Given& given, const SampleUsage& usage) {
  if (!given.has("out")) {
    fail_argument("--out " + usage.out + " is missing", "write for example --out " + usage.example_out);
  }
  const std::string out = given.text("out");
  if (usage.endings.empty() || std::any_of(usage.endings.begin(), usage.endings.end(),
                                           [&](const auto& ending) { return ends_in(out, ending); }))
    return;
  fail_argument(given.place("out"),
                "unknown kind of file; allowed: a name that ends in " + listed(usage.endings, " or "));
}

SampleArgument::Value value_of(const Given& given, const SampleArgument& argument) {
  const auto of_kind = [&](const auto& kind) -> SampleArgument::Value {
    return given.value_of(argument.name, kind, argument.allowed);
  };
  return std::visit(of_kind, argument.kind);
}

}  // namespace

TrainArguments parse_train_arguments(int argc, const char* const* argv) {
  const Given given("dit-train", train_options(), argc, argv);
  TrainArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  arguments.config = required_config(given, "dit-train");
  arguments.set = given.all("set");
  arguments.resume = given.text("resume");
  arguments.device = checked_device(given);
  arguments.print_config = given.has("print-config");
  return arguments;
}

SampleArguments parse_sample_arguments(int argc, const char* const* argv) {
  const std::vector<SampleUsage> usages = sample_usages();
  const Given given("dit-sample", sample_options(usages), argc, argv);
  SampleArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  check_sources(given);
  const SampleUsage& usage = wanted_usage(given, usages);
  check_has_use(given, usage, usages);
  check_out(given, usage);
  for (const SampleArgument& one : usage.arguments) {
    if (given.has(one.name)) arguments.own.emplace(one.name, value_of(given, one));
  }
  arguments.checkpoint = given.text("checkpoint");
  arguments.weights = given.text("weights");
  arguments.key = given.text("key");
  arguments.config = given.text("config");
  arguments.raw = given.has("raw");
  arguments.out = given.text("out");
  arguments.device = checked_device(given);
  arguments.threads = given.number<int64_t>("threads", find_key("train.threads")->allowed);
  return arguments;
}

ExportArguments parse_export_arguments(int argc, const char* const* argv) {
  const Given given("dit-export", export_options(), argc, argv);
  ExportArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  if (!given.has("checkpoint")) {
    fail_argument("--checkpoint is missing",
                  "write for example dit-export --checkpoint runs/mine --out mine.pt");
  }
  if (!given.has("out")) fail_argument("--out FILE is missing", "write for example --out mine.safetensors");
  if (given.has("raw") && given.has("key"))
    fail_argument("--raw", "is short for --key model; give one of them");
  arguments.checkpoint = given.text("checkpoint");
  arguments.config = given.text("config");
  arguments.raw = given.has("raw");
  arguments.key = arguments.raw ? "model" : given.text("key");
  arguments.out = given.text("out");
  if (!ends_in(arguments.out, ".safetensors") && !ends_in(arguments.out, ".pt")) {
    fail_argument(given.place("out"),
                  "unknown kind of file; allowed: a name that ends in .safetensors or .pt");
  }
  return arguments;
}

std::string train_help() {
  return R"(dit-train: trains a diffusion transformer as a TOML configuration says.

Usage: dit-train --config FILE [options]

  --config FILE         configuration of the run
  --set KEY=VALUE       replaces one value of the configuration; may be repeated
  --set KEY=default     takes back what the configuration says of any key
  --resume DIR|latest   continues from a checkpoint's folder, or from the newest
                        one of the run folder DIR or, latest, train.out
  --device DEVICE       cpu, cuda, cuda:INDEX or auto, the default: cuda where a
                        driver answers
  --print-config        prints the effective configuration with the origin of
                        each value, and ends
  --version             prints the version, and ends
  -h, --help            prints this text, and ends

Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 memory, 4 data,
5 stopped by a signal.

Example: dit-train --config configs/base.toml --set train.out=runs/mine
)";
}

std::string sample_help() {
  const std::vector<SampleUsage> usages = sample_usages();
  std::string usage, help, options_help;
  for (const SampleUsage& one : usages) {
    usage += (usage.empty() ? "Usage: " : "       ") + std::string("dit-sample --checkpoint DIR --") +
             one.first() + " " + one.value + " --out " + one.out + " [options]\n";
    help += one.help;
    options_help += one.options_help;
  }
  const SampleUsage& example = usages.front();
  return R"(dit-sample: draws samples from a trained diffusion transformer.

)" + usage +
         R"(
  --checkpoint DIR      a checkpoint's folder, or a run's for its newest one
  --weights FILE        a safetensors or torch.save file, not --checkpoint
  --key KEY             of the weights in FILE; default: ema, if it is there
  --config FILE         configuration; default: the one saved with the weights
)" + help +
         R"(  --raw                 the checkpoint's raw weights instead of its EMA
  --device DEVICE       auto (default), cpu, cuda or cuda:INDEX
Not given, these are the run's, so that its own samples come out again:
)" + options_help +
         R"(  --seed S              seed of the noise;  --threads N  CPU threads
  --version, -h, --help prints the version or this text, and ends
Exit codes: 0 done, 1 failure, 2 usage, 3 memory, 4 data, 5 stopped by a signal.
Example: dit-sample --checkpoint runs/mine --)" +
         example.first() + " " + example.example + " --out " + example.example_out + "\n";
}

std::string export_help() {
  return R"(dit-export: writes a model's weights for other programs.

Usage: dit-export --checkpoint RUN|CHECKPOINT|FILE --out FILE [options]

  --checkpoint SOURCE   a run's folder for its newest checkpoint, a checkpoint's
                        folder, or a file: safetensors or of torch.save
  --out FILE            .safetensors, or .pt, which torch.load reads; a state
                        dict in float32 with the original DiT's names
  --raw                 the raw weights instead of the EMA's
  --key KEY             of the weights in a file of torch.save
  --config FILE         configuration of the model; default: the one saved with
                        the run, or config.toml beside the file
  --version, -h, --help prints the version or this text, and ends

Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 memory, 4 data,
5 stopped by a signal.
Example: dit-export --checkpoint runs/mine --out mine.safetensors
)";
}

}  // namespace dtk
