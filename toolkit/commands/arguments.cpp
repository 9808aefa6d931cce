#include "toolkit/commands/arguments.h"

#include "toolkit/commands/given.h"

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

const std::string& allowed_for(const std::string& key) {
  return find_key(key)->allowed;
}

std::vector<int64_t> parse_classes(const Given& given) {
  std::vector<int64_t> classes;
  const std::string list = given.text("classes");
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    classes.push_back(
        Given::parse_number<int64_t>(given.place("classes"), list.substr(begin, end - begin), "[0, inf)"));
    begin = end + 1;
  }
  return classes;
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

const std::vector<Option>& sample_options() {
  static const std::vector<Option> options = {
      {"checkpoint", Option::value}, {"weights", Option::value},      {"config", Option::value},
      {"classes", Option::value},    {"guidance", Option::value},     {"steps", Option::value},
      {"seed", Option::value},       {"cfg-channels", Option::value}, {"per-class", Option::value},
      {"raw", Option::flag},         {"out", Option::value},          {"device", Option::value},
      {"threads", Option::value},    {"help", Option::flag},          {"version", Option::flag},
      {"key", Option::value},        {"sampler", Option::value},      {"respacing", Option::value},
      {"eta", Option::value},        {"clip-x0", Option::value},      {"frames", Option::value},
  };
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

// Which of the two the model draws from is known once its configuration is read.
void check_classes_or_frames(const Given& given) {
  if (given.has("classes") != given.has("frames")) return;
  const std::string seen = given.has("frames") ? "both are" : "neither is";
  throw ConfigError(
      "give exactly one of --classes LIST, for images and latents, and --frames LIST, for the driving "
      "planner; " +
      seen + " given");
}

void check_frames(const Given& given) {
  for (const char* const name :
       {"per-class", "guidance", "cfg-channels", "sampler", "respacing", "eta", "clip-x0", "seed"}) {
    if (!given.has(name)) continue;
    fail_argument(
        given.place(name),
        "has no use with --frames, whose trajectories are drawn without classes, guidance or noise; "
        "remove it");
  }
  if (!given.has("out")) fail_argument("--out FOLDER is missing", "write for example --out drawn");
}

void check_image_file(const Given& given) {
  if (!given.has("out")) fail_argument("--out FILE is missing", "write for example --out grid.png");
  const std::string out = given.text("out");
  if (!ends_in(out, ".png") && !ends_in(out, ".safetensors") && !ends_in(out, ".npy")) {
    fail_argument(given.place("out"),
                  "unknown kind of file; allowed: a name that ends in .png, .safetensors or .npy");
  }
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
  const Given given("dit-sample", sample_options(), argc, argv);
  SampleArguments arguments;
  if (wants_text_only(given, arguments)) return arguments;
  check_sources(given);
  check_classes_or_frames(given);
  arguments.frames = given.text("frames");
  if (given.has("frames")) {
    check_frames(given);
  } else {
    check_image_file(given);
    arguments.classes = parse_classes(given);
  }
  arguments.checkpoint = given.text("checkpoint");
  arguments.weights = given.text("weights");
  arguments.key = given.text("key");
  arguments.config = given.text("config");
  arguments.guidance = given.number<double>("guidance", allowed_for("sample.guidance"));
  arguments.cfg_channels = given.number<int64_t>("cfg-channels", allowed_for("sample.cfg_channels"));
  arguments.sampler = given.choice("sampler", allowed_for("sample.sampler"));
  arguments.steps = given.number<int64_t>("steps", allowed_for("sample.steps"));
  if (given.has("respacing")) arguments.respacing = given.text("respacing");
  arguments.eta = given.number<double>("eta", allowed_for("sample.eta"));
  arguments.clip_x0 = given.boolean("clip-x0");
  arguments.seed = given.number<int64_t>("seed", allowed_for("sample.seed"));
  arguments.per_class = given.number<int64_t>("per-class", "[1, 1024]").value_or(1);
  arguments.raw = given.has("raw");
  arguments.out = given.text("out");
  arguments.device = checked_device(given);
  arguments.threads = given.number<int64_t>("threads", allowed_for("train.threads"));
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
  return R"(dit-sample: draws samples from a trained diffusion transformer.

Usage: dit-sample --checkpoint DIR --classes LIST --out FILE [options]
       dit-sample --checkpoint DIR --frames LIST --out FOLDER [options]

  --checkpoint DIR      a checkpoint's folder, or a run's for its newest one
  --weights FILE        a safetensors or torch.save file, not --checkpoint
  --key KEY             of the weights in FILE; default: ema, if it is there
  --config FILE         configuration; default: the one saved with the weights
  --classes LIST        one row each: 0,1,2;  --per-class K  samples each, or 1
  --out FILE            images as a grid (.png), or samples (.safetensors, .npy)
  --frames LIST         for a driving planner: folder or JSON list of its frames
  --out FOLDER          for trajectories.safetensors, and for frames.json
  --raw                 the checkpoint's raw weights instead of its EMA
  --device DEVICE       auto (default), cpu, cuda or cuda:INDEX
Not given, these are the run's, so that its own samples come out again:
  --sampler NAME        euler, heun, ddpm or ddim;  --steps N  sampler steps
  --respacing TEXT      which steps of ddpm, ddim: 250, 10,15,20 or ddim50
  --eta E               ddpm's share of noise in ddim;  --clip-x0 true|false
  --guidance SCALE      1 is off;  --cfg-channels N  channels guided, 0 is all
  --seed S              seed of the noise;  --threads N  CPU threads
  --version, -h, --help prints the version or this text, and ends
Exit codes: 0 done, 1 failure, 2 usage, 3 memory, 4 data, 5 stopped by a signal.
Example: dit-sample --checkpoint runs/mine --classes 0,1,2 --out grid.png
)";
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
