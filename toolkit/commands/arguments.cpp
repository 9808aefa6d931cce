#include "toolkit/commands/arguments.h"

#include "toolkit/checkpoint/find.h"
#include "toolkit/commands/given.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"

namespace dtk {

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
            fmt::format("writing a first configuration is all that --init does; leave --{} out", name));
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
  --keys [PREFIX]       prints the keys that begin so, what each is for; ends
  --doctor              prints what this machine has and lacks, and ends
  --version, -h, --help prints the version, or this text, and ends

Exit codes: 0 done, 1 failure, 2 configuration or usage, 3 memory, 4 data,
5 stopped by a signal, 6 another rank does not answer.

Example: dit-train --config base --set train.out=runs/mine
)";
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
