#include "toolkit/commands/arguments.h"

#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <charconv>

#include "toolkit/checkpoint/find.h"
#include "toolkit/commands/given.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/device/cards.h"
#include "toolkit/distributed/launch.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

std::string checked_device(const Given& given) {
  const std::string device = given.text("device", "auto");
  const bool indexed = device.starts_with("cuda:") && device.size() > 5 && device.size() < 9 &&
                       device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (indexed || is_one_of(device, {"auto", "cpu", "cuda"})) return device;
  fail_argument(given.place("device"),
                "no such device; allowed: auto, cpu, cuda, or cuda:INDEX such as cuda:0");
}

void check_ending(const Given& given, const std::vector<std::string>& endings) {
  const std::string out = given.text("out");
  const auto has = [&](const std::string& ending) {
    return out.size() > ending.size() && out.ends_with(ending);
  };
  if (std::any_of(endings.begin(), endings.end(), has)) return;
  fail_argument(given.place("out"),
                "unknown kind of file; allowed: a name that ends in " + listed(endings, " or "));
}

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
  if (!usage.endings.empty()) check_ending(given, usage.endings);
}

SampleArgument::Value value_of(const Given& given, const SampleArgument& argument) {
  if (argument.is_flag) return true;
  const auto of_kind = [&](const auto& kind) -> SampleArgument::Value {
    return given.value_of(argument.name, kind, argument.allowed);
  };
  return std::visit(of_kind, argument.kind);
}

void check_one_question(const Given& given) {
  std::vector<std::string> seen;
  for (const char* name : {"table", "explain", "claims", "max-batch", "max-frames", "worlds"}) {
    if (given.has(name)) seen.push_back(std::string("--") + name);
  }
  if (seen.size() > 1) fail_argument(listed(seen, " and "), "each is a report of its own; give one of them");
  if (!given.has("calibrate")) return;
  for (const char* name :
       {"table", "explain", "claims", "max-batch", "json", "no-fold", "calibration", "no-term"}) {
    if (given.has(name))
      fail_argument(std::string("--calibrate and --") + name, "measuring is no report; give one of them");
  }
}

// One number of a list. `kind`: "frames; allowed: ..."
int64_t count_in(const Given& given, const char* argument, const std::string& text, int64_t most,
                 const std::string& kind) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= most) return count;
  fail_argument(given.place(argument), "\"" + text + "\" is no number of " + kind);
}

std::vector<int64_t> counts_of(const Given& given) {
  std::vector<int64_t> counts;
  std::string list = given.text("frames");
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    counts.push_back(count_in(given, "frames", list.substr(0, end), 1 << 24,
                              "frames; allowed: numbers in [1, 16777216], separated by commas"));
    list.erase(0, end + 1);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

// As it was written; "": not given.
std::string size_or_card(const Given& given, const char* name) {
  std::string text = given.text(name);
  if (given.has(name) && !is_byte_size(text) && find_card(text) == nullptr) {
    std::vector<std::string> names;
    for (const Card& card : cards()) names.push_back(card.name);
    fail_argument(given.place(name), "\"" + text + "\" is not a size; allowed: " + wanted(ByteSize{}, "") +
                                         "; or a card: " + listed(names, " or "));
  }
  return text;
}

// --infer with one of --frames and --max-frames, and what has no use beside it.
void parse_inference(const Given& given, PlanArguments& arguments) {
  arguments.infer = given.has("infer");
  for (const char* name : {"frames", "max-frames"}) {
    if (given.has(name) && !arguments.infer)
      fail_argument(given.place(name), "is of a job that only infers; add --infer, or leave it out");
  }
  if (!arguments.infer) return;
  for (const char* name : {"max-batch", "report", "calibrate", "calibration"}) {
    if (given.has(name))
      fail_argument(std::string("--infer and --") + name,
                    "nothing is trained in such a job; give one of them");
  }
  if (given.has("frames") && given.has("max-frames"))
    fail_argument("--frames and --max-frames", "each says how many; give one of them");
  if (given.has("frames") == given.has("max-frames"))
    fail_argument("--infer", "of how many frames? Give --frames N, --frames N,M,... or --max-frames SIZE");
  arguments.frames = counts_of(given);
  if (given.has("frames") && arguments.frames.empty())
    fail_argument("--frames", "names no number; write for example --frames 1,10,100");
  arguments.max_frames = size_or_card(given, "max-frames");
  if (arguments.frames.size() > 1 && (given.has("table") || given.has("explain") || given.has("claims")))
    fail_argument(given.place("frames"), "--table, --explain and --claims are of one number; name one");
  if (given.has("claims") && given.has("json"))
    fail_argument("--infer --claims --json", "is a text alone; leave --json out");
}

int64_t ranks_in(const Given& given, const char* argument, const std::string& text) {
  return count_in(given, argument, text, kMaxRanks, fmt::format("ranks; allowed: [1, {}]", kMaxRanks));
}

// --world N
int64_t world_of(const Given& given) {
  for (const char* argument : {"world", "worlds"}) {
    for (const char* name : {"infer", "calibrate"}) {
      if (given.has(argument) && given.has(name))
        fail_argument(fmt::format("--{} and --{}", argument, name),
                      fmt::format("only what trains has ranks; leave --{} out", argument));
    }
  }
  if (given.has("world") && given.has("worlds"))
    fail_argument("--world and --worlds", "each says how many ranks; give one of them");
  return given.has("world") ? ranks_in(given, "world", given.text("world")) : 1;
}

// --worlds N,M
std::vector<int64_t> worlds_of(const Given& given) {
  std::vector<int64_t> worlds;
  if (!given.has("worlds")) return worlds;
  const std::string list = given.text("worlds") + ",";
  for (size_t begin = 0, end = 0; (end = list.find(',', begin)) != list.npos; begin = end + 1)
    worlds.push_back(ranks_in(given, "worlds", list.substr(begin, end - begin)));
  return worlds;
}

// --no-term NAME: each leaves one out.
planner::DeviceTermOptions terms_of(const Given& given, PlannedDevice device) {
  using Terms = planner::DeviceTermOptions;
  static const std::vector<std::pair<std::string, bool Terms::*>> switches = {
      {"rounding", &Terms::rounding},
      {"attention_scratch", &Terms::attention_scratch},
      {"reduction_scratch", &Terms::reduction_scratch},
      {"workspaces", &Terms::workspaces},
      {"convolution_workspaces", &Terms::convolution_workspaces},
      {"kernel_scratch", &Terms::kernel_scratch},
      {"context", &Terms::context},
      {"pinned", &Terms::pinned}};
  Terms terms;
  for (const std::string& name : given.all("no-term")) {
    std::vector<std::string> known;
    for (const auto& [term, member] : switches) {
      known.push_back(term);
      if (name == term) terms.*member = false;
    }
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_argument("--no-term " + name, "no term that a device adds; allowed: " + listed(known, " and "));
  }
  if (device == PlannedDevice::cpu && given.has("no-term"))
    fail_argument(given.place("no-term"), "nothing is added on the CPU; use it with --device cuda");
  return terms;
}

// What a device adds does not depend on a job; which kernels the CPU calls does.
std::string config_of(const Given& given, PlannedDevice device) {
  if (!given.has("calibrate")) return required_config(given, "dit-plan");
  if (device == PlannedDevice::cpu) {
    if (given.has("config")) return given.text("config");
    fail_argument("--calibrate with --device cpu: --config FILE is missing",
                  "measured are the kernels that a job calls; write for example dit-plan --config "
                  "base --device cpu --calibrate " +
                      given.text("calibrate"));
  }
  for (const char* name : {"config", "set"}) {
    if (given.has(name)) {
      fail_argument(std::string("--calibrate and --") + name,
                    "what a GPU adds does not depend on a job; leave --" + std::string(name) +
                        " out, or measure the kernels of the job with --device cpu");
    }
  }
  return "";
}

}  // namespace

TrainArguments parse_train_arguments(int argc, const char* const* argv) {
  const Given given("dit-train",
                    {{"config", Option::value},
                     {"set", Option::repeated},
                     {"resume", Option::value},
                     {"out", Option::value},
                     {"init", Option::value},
                     {"device", Option::value},
                     {"verbose", Option::flag},
                     {"trace", Option::value},
                     {"print-config", Option::flag},
                     {"keys", Option::optional_value},
                     {"doctor", Option::flag}},
                    argc, argv);
  TrainArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  arguments.doctor = given.has("doctor");
  if (arguments.doctor) return arguments;
  if (given.has("keys")) {
    arguments.keys = given.text("keys");
    return arguments;
  }
  arguments.device = checked_device(given);
  arguments.out = given.text("out");
  arguments.init = given.text("init");
  if (given.has("init")) {
    for (const char* name : {"config", "set", "resume", "print-config", "trace"}) {
      if (given.has(name))
        fail_argument(
            std::string("--init and --") + name,
            "writing a first configuration is all that --init does; leave --" + std::string(name) + " out");
    }
    return arguments;
  }
  arguments.resume = given.text("resume");
  arguments.set = given.all("set");
  if (given.has("out")) {
    arguments.set.push_back("train.out=" + toml_text(given.text("out")));
    if (policies::parse_enum<ResumeWord>(arguments.resume) == ResumeWord::latest)
      arguments.resume = given.text("out");
  }
  const auto word = policies::parse_enum<ResumeWord>(arguments.resume);
  if (word == ResumeWord::automatic && !given.has("config"))
    fail_argument("--resume auto", "what begins where there is no checkpoint? Give --config FILE");
  if (word == ResumeWord::latest && !given.has("config")) {
    fail_argument("--resume latest",
                  "of which run? Name it, as in --resume runs/mine, or give --out DIR or --config FILE");
  }
  arguments.config = given.has("resume") ? given.text("config") : required_config(given, "dit-train");
  arguments.verbose = given.has("verbose");
  arguments.trace = given.text("trace");
  arguments.print_config = given.has("print-config");
  return arguments;
}

PlanArguments parse_plan_arguments(int argc, const char* const* argv) {
  const Given given("dit-plan",
                    {{"config", Option::value},
                     {"set", Option::repeated},
                     {"device", Option::value},
                     {"table", Option::flag},
                     {"explain", Option::flag},
                     {"claims", Option::flag},
                     {"report", Option::value},
                     {"infer", Option::flag},
                     {"frames", Option::value},
                     {"max-frames", Option::value},
                     {"max-batch", Option::value},
                     {"world", Option::value},
                     {"worlds", Option::value},
                     {"json", Option::flag},
                     {"no-fold", Option::flag},
                     {"calibrate", Option::value},
                     {"calibration", Option::value},
                     {"no-term", Option::repeated}},
                    argc, argv);
  PlanArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  check_one_question(given);
  const auto device = policies::parse_enum<PlannedDevice>(given.text("device", "cuda"));
  if (!device)
    fail_argument(given.place("device"), "no device to plan for; allowed: cuda, the default, or cpu");
  arguments.device = *device;
  arguments.config = config_of(given, arguments.device);
  arguments.set = given.all("set");
  arguments.max_batch = size_or_card(given, "max-batch");
  arguments.calibrate = given.text("calibrate");
  arguments.calibration = given.text("calibration");
  if (measures_here(arguments) && arguments.device != PlannedDevice::cpu)
    fail_argument(
        "--calibration here",
        "measures the scratch of the CPU's kernels; use it with --device cpu, or give the file that "
        "dit-plan --calibrate FILE wrote on the GPU");
  arguments.terms = terms_of(given, arguments.device);
  arguments.table = given.has("table");
  arguments.explain = given.has("explain");
  arguments.claims = given.has("claims");
  arguments.report = given.text("report");
  if (given.has("report") && !arguments.claims)
    fail_argument("--report", "is laid beside what others claim; add --claims, or leave it out");
  parse_inference(given, arguments);
  arguments.world = world_of(given);
  arguments.worlds = worlds_of(given);
  arguments.json = given.has("json");
  arguments.fold = !given.has("no-fold");
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
  if (given.has("threads"))
    arguments.threads = given.value_of("threads", int64_t{}, find_key("train.threads")->allowed);
  return arguments;
}

ExportArguments parse_export_arguments(int argc, const char* const* argv) {
  const Given given("dit-export",
                    {{"checkpoint", Option::value},
                     {"config", Option::value},
                     {"out", Option::value},
                     {"adapter", Option::value},
                     {"merge", Option::flag},
                     {"pack", Option::value},
                     {"raw", Option::flag},
                     {"overwrite", Option::flag},
                     {"key", Option::value}},
                    argc, argv);
  ExportArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  if (!given.has("checkpoint")) {
    fail_argument("--checkpoint is missing",
                  "write for example dit-export --checkpoint runs/mine --out mine.pt");
  }
  arguments.adapter = given.text("adapter");
  arguments.changes = {.merge = given.has("merge"), .pack = given.text("pack")};
  if (given.has("adapter") && (given.has("out") || arguments.changes.merge || given.has("pack")))
    fail_argument("--adapter", "is written alone; leave --out, --merge and --pack out");
  if (!given.has("out") && !given.has("adapter"))
    fail_argument("--out FILE is missing", "write for example --out mine.safetensors");
  if (given.has("raw") && given.has("key"))
    fail_argument("--raw", "is short for --key model; give one of them");
  arguments.checkpoint = given.text("checkpoint");
  arguments.config = given.text("config");
  arguments.raw = given.has("raw");
  arguments.key = arguments.raw ? "model" : given.text("key");
  arguments.out = given.text("out");
  arguments.overwrite = given.has("overwrite");
  if (given.has("out")) check_ending(given, {".safetensors", ".pt"});
  return arguments;
}

std::string train_help() {
  return R"(dit-train: trains a diffusion transformer as a TOML configuration says.

Usage: dit-train --config FILE [options]

  --config FILE|NAME    configuration of the run; NAME: one that is shipped
  --set KEY=VALUE       replaces one value of the configuration; may be repeated
  --set KEY=default     takes back what the configuration says of any key
  --init DATA           looks at a folder or file of data and writes a first
                        configuration for it, to --out FILE or <name>.toml
  --out DIR             the run's folder: train.out
  --resume RUN|latest   goes on from the newest checkpoint of RUN, or of --out;
                        a checkpoint's folder: from it; auto: latest, if any
  --device DEVICE       cpu, cuda, cuda:INDEX; default auto: cuda with a driver
  --verbose             prints the configuration, memory and policies' savings
  --trace FILE.json     writes a timeline of steps 3 to 5, for Perfetto
  --print-config        prints the configuration, the origin of each value; ends
  --keys [PREFIX]       prints the keys that begin so and what they are for; ends
  --doctor              prints what this machine has and lacks, and ends
  --version, -h, --help prints the version, or this text, and ends

Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 memory, 4 data,
5 stopped by a signal, 6 another rank does not answer.

Example: dit-train --config base --set train.out=runs/mine
)";
}

std::string plan_help() {
  const std::string policies = std::to_string(policies::policy_kinds(/*ranks=*/1).size());
  const std::string rows = std::to_string(1 << policies::policy_kinds(/*ranks=*/1).size());
  return R"(dit-plan: the memory that a configured training job takes, before it is run.

Usage: dit-plan --config FILE [options]

  --config FILE|NAME    configuration of the run; no weights are read
  --set KEY=VALUE       replaces one value of the configuration; may be repeated
  --device cuda|cpu     device to plan for; default cuda, present or not
Instead of the plain report, one of:
  --table               all )" +
         rows + " combinations of the " + policies + R"( policies, by peak
  --explain             what each policy and each module changes, and why
  --claims [--report R] what others claim, beside plans and the times of run R
  --max-batch SIZE      the largest data.batch that fits: 24GB, 80%, h100
  --infer --frames N,M  passes that train nothing; or --max-frames SIZE
With any of them:
  --world N             of one of N ranks that train it together; --worlds N,M
  --json                as memory.json; with --table an array of )" +
         rows + R"(
  --no-term NAME        leaves out one of what a device adds; may be repeated
  --calibration FILE    what only a measurement tells; "here": measured now
  --no-fold             plans every pass of a loop, also those that repeat
  --calibrate FILE      only measures, for it: the CPU's kernels, or the GPU
  --version, -h, --help prints the version, or this text, and ends
Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 does not fit into
memory.budget or what is asked for, 4 data.samples are too few to train on.
Example: dit-plan --config base --device cuda
)";
}

std::string sample_help() {
  const std::vector<SampleUsage> usages = sample_usages();
  std::string usage, help, options_help;
  for (const SampleUsage& one : usages) {
    usage += (usage.empty() ? "--" : ", --") + one.first() + " " + one.value;
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

std::string export_help() {
  return R"(dit-export: writes a model's weights for other programs.

Usage: dit-export --checkpoint RUN|CHECKPOINT|FILE --out FILE [options]

  --checkpoint SOURCE   a run's folder for its newest checkpoint, a checkpoint's
                        folder, or a file: safetensors or of torch.save
  --out FILE            .safetensors, or .pt, which torch.load reads; a state
                        dict in float32 with the original's names
  --merge               adapters joined with the weights that they lie beside
  --pack nf4|int8       matrices in few bits, as bitsandbytes packs them
  --adapter FOLDER      in the place of --out: adapters alone, as peft has them
  --overwrite           also where FILE is there already
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
