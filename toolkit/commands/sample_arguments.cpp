#include "toolkit/train/sample_arguments.h"

#include <algorithm>

#include "toolkit/commands/arguments.h"
#include "toolkit/commands/given.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

// Those of all families, each once.
std::vector<Option> sample_options(const std::vector<SampleUsage>& usages) {
  std::vector<Option> options = {
      {"checkpoint", Option::value}, {"weights", Option::value}, {"config", Option::value},
      {"raw", Option::flag},         {"out", Option::value},     {"device", Option::value},
      {"threads", Option::value},    {"key", Option::value},
  };
  for (auto usage = usages.begin(); usage != usages.end(); ++usage) {
    for (const SampleArgument& one : usage->arguments) {
      if (std::none_of(usages.begin(), usage, [&](const auto& earlier) { return earlier.has(one.name); }))
        options.push_back({one.name, one.is_flag ? Option::flag : Option::value});
    }
  }
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
    choices.push_back(fmt::format("--{} {}, {}", usage.first(), usage.value, usage.purpose));
  }
  if (wanted.size() == 1) return *wanted.front();
  const bool of_two = usages.size() == 2;
  const std::string none = of_two ? "neither is" : "none is", several = of_two ? "both are" : "several are";
  throw ConfigError(fmt::format("give exactly one of {}; {} given", listed(choices, ", and "),
                                wanted.empty() ? none : several));
}

void check_has_use(const Given& given, const SampleUsage& usage, const std::vector<SampleUsage>& usages) {
  for (const SampleUsage& other : usages) {
    for (const SampleArgument& one : other.arguments) {
      if (!given.has(one.name) || usage.has(one.name)) continue;
      fail_argument(given.place(one.name),
                    fmt::format("has no use with --{}{}; remove it", usage.first(), usage.none_of_others));
    }
  }
}

void check_out(const Given& given, const SampleUsage& usage) {
  if (!given.has("out")) {
    fail_argument("--out " + usage.out + " is missing", "write for example --out " + usage.example_out);
  }
  if (!usage.endings.empty()) check_ending(given, usage.endings);
}

SampleArgument::Value value_of(const Given& given, const SampleArgument& argument) {
  if (argument.is_flag) return true;
  const auto of_kind = [&](const auto& kind) -> SampleArgument::Value {
    return given.value_of(argument.name, kind, argument.allowed);
  };
  return std::visit(of_kind, argument.kind);
}

}  // namespace

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
  if (given.has("threads"))
    arguments.threads = given.value_of("threads", int64_t{}, find_key("train.threads")->allowed);
  return arguments;
}

std::string sample_help() {
  const std::vector<SampleUsage> usages = sample_usages();
  std::string usage, help, options_help;
  for (const SampleUsage& one : usages) {
    usage += fmt::format("{}{} {}", usage.empty() ? "--" : ", --", one.first(), one.value);
    help += one.help;
    options_help += one.options_help;
  }
  const SampleUsage& example = usages.front();
  return fmt::format(R"(dit-sample: draws samples from a trained model, or has it answer.

Usage: dit-sample --checkpoint DIR --out OUT [options] and one of
       {}

  --checkpoint DIR      a checkpoint's folder, or a run's for its newest one
  --weights FILE        a safetensors or torch.save file, not --checkpoint
  --key KEY             of FILE's weights (ema);  --raw  not the average of DIR
  --config FILE         configuration; default: the one saved with the weights
{}  --device DEVICE       auto (default), cpu, cuda or cuda:INDEX
Not given, these are the run's, so that its own samples come out again:
{}  --seed S              seed of the noise;  --threads N  CPU threads
  --version, -h, --help prints the version or this text, and ends
Exit codes: 0 done, 1 failure, 2 usage, 3 memory, 4 data, 5 stopped by a signal.
Example: dit-sample --checkpoint runs/mine --{} {} --out {}
)",
                     usage, help, options_help, example.first(), example.example, example.example_out);
}

}  // namespace dtk
