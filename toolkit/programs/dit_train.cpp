// dit-train: trains a diffusion transformer as a configuration file says.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "toolkit/checkpoint/find.h"
#include "toolkit/commands/arguments.h"
#include "toolkit/commands/init.h"
#include "toolkit/config/config_io.h"
#include "toolkit/config/key_page.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/device/device.h"
#include "toolkit/distributed/agreement.h"
#include "toolkit/distributed/joined_ranks.h"
#include "toolkit/distributed/launch.h"
#include "toolkit/io/sha256.h"
#include "toolkit/programs/installed.h"
#include "toolkit/programs/plan_child.h"
#include "toolkit/programs/process_settings.h"
#include "toolkit/programs/terminal.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/run/follower.h"
#include "toolkit/run/run.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/save_load.h"

namespace {

using namespace dtk;

void print_line(const char* name, const std::string& value) {
  if (!value.empty()) std::printf("%-14s%s\n", name, printable(value).c_str());
}

// Of the system's memory: code, libraries and what kernels take for themselves beside tensors.
std::string max_of_process() {
  rusage use{};
  if (getrusage(RUSAGE_SELF, &use) != 0) return "";
  return readable_bytes(int64_t{use.ru_maxrss} * 1024) +
         " of the machine's memory at most, tensors and all else";
}

void print_summary(const RunResult& result, bool verbose) {
  if (result.memory && verbose) std::printf("\n%s", memory_table(*result.memory).c_str());
  if (result.memory && result.planned && verbose) {
    std::printf("\n%s", planned_against_measured(*result.planned, *result.memory).c_str());
  }
  std::printf("\n");
  if (result.trained_steps > 0) {
    const bool resumed = result.trained_steps < result.step;
    print_line("final loss", fmt::format("{:.4f} after {} steps, {} of training{}", result.loss, result.step,
                                         duration(resumed ? result.run_seconds : result.seconds),
                                         resumed ? " in the whole run" : ""));
    if (resumed && verbose) {
      print_line("this process", fmt::format("{} of these steps, {} of training", result.trained_steps,
                                             duration(result.seconds)));
    }
    const double waiting = 100 * result.exposed_wait_fraction;
    print_line("speed", fmt::format("{} {}/s ({:.2f} % of the time waiting for data)",
                                    rate(result.images_per_second), result.sample_name, waiting) +
                            (result.mfu ? fmt::format(", MFU {:.3g} %", 100 * *result.mfu) : ""));
  }
  if (result.ranks > 1) {
    const policies::Traffic sent = total(result.sent);
    print_line("ranks", fmt::format("{}; this one sends {} in {} messages a step, waits {:.2f} % of the time",
                                    result.ranks, readable_bytes(sent.bytes), sent.messages,
                                    100 * result.rank_wait_fraction));
  }
  for (const LoggedEscalation& one : result.escalations)
    print_line("less memory", fmt::format("after step {} went on with {}", one.step, one.set));
  if (result.skipped_steps > 0) {
    print_line("skipped",
               fmt::format("{} of these steps changed nothing: their loss or gradient was NaN or infinite",
                           result.skipped_steps));
  }
  if (result.warmup > 0 && !result.stopped) {
    print_line("warm-up",
               fmt::format("the run ended in it: no step had the whole learning rate, which comes after {} "
                           "steps (schedule.warmup); train longer, or set fewer",
                           result.warmup));
  }
  if (result.validation_loss) {
    print_line("validation",
               fmt::format("loss {:.4f} of {} held-out samples", *result.validation_loss, result.held_out));
  }
  if (result.memory) {
    const auto peak = result.memory->peak();
    print_line("peak memory",
               fmt::format("{} in phase {}{}", readable_bytes(peak.peak.bytes), peak.name,
                           result.planned && !verbose
                               ? ", planned " + readable_bytes(result.planned->peak().peak.bytes)
                               : ""));
  } else if (result.trained_steps > 0) {
    print_line("memory", "bytes were not counted, no memory.json: memory.ledger = false");
  }
  if (result.trained_steps > 0 && verbose) print_line("process", max_of_process());
  print_line("checkpoint", result.checkpoint.string());
  print_line("samples", result.samples.string());
  print_line("report", result.report.string());
  if (result.synthetic) print_line("data", "SYNTHETIC: the samples were made up by a program");
  if (!result.unseen_classes.empty()) print_line("classes", result.unseen_classes + ": no samples");
  std::fflush(stdout);
}

class TrainObserver final : public TerminalObserver {
 public:
  explicit TrainObserver(bool verbose) : TerminalObserver(verbose), verbose_(verbose) {}

 private:
  void finished(const RunResult& result) override {
    end_bar();
    print_summary(result, verbose_);
  }
  const bool verbose_;
};

void say(const std::string& text) {
  std::printf("%s\n", printable(text).c_str());
  std::fflush(stdout);
}

ExitCode write_first(const TrainArguments& arguments, FileSystem& files) {
  SteadyClock clock;
  catch_stop_signals();
  const c10::Device device = open_device(arguments.device);
  const std::filesystem::path file =
      write_first_config(arguments.init, arguments.out, device,
                         {files, [&] { return clock.seconds(); }, &plan_in_child, say, &stop_requested});
  say(fmt::format("wrote {}; train with it: dit-train --config {}", file.string(),
                  shell_quoted(file.string())));
  return ExitCode::done;
}

// Without the kernels a run is the one without them, for its plan too.
void take_cuda_kernels(policies::FusionOptions& fusion) {
  if (!fusion.cuda || fusion.enabled == policies::Enabled::off) return;
  const std::string problem = open_cuda_kernels();
  if (problem.empty()) return;
  if (fusion.enabled == policies::Enabled::on)
    throw ConfigError("policies.fusion.enabled = true, but its kernels for CUDA cannot be had: " + problem);
  std::printf("policies.fusion.cuda has no effect: %s\n", printable(problem).c_str());
  fusion.cuda = false;
}

// The ranks that were started with this one; null: there are none.
JoinedRanks* join(const std::optional<Launch>& launch, const LoadedConfig& loaded) {
  return launch ? join_ranks(*launch, loaded.config.distributed, say) : nullptr;
}

// Micro-batches of a step of the run that wrote it, where nobody has written how many; else nothing.
std::optional<int64_t> micro_batches_of(const LoadedConfig& written) {
  const Origin::Source source = written.origins.at("train.accumulate").source;
  const bool is_chosen = source == Origin::Source::by_default || source == Origin::Source::checkpoint;
  return is_chosen ? std::optional(written.config.train.accumulate) : std::nullopt;
}

// By which ranks that read their own disks notice that they would go on from others.
std::string name_of(FileSystem& files, const std::filesystem::path& checkpoint) {
  if (checkpoint.empty()) return "none";
  const std::filesystem::path manifest = checkpoint / "manifest.json";
  return checkpoint.filename().string() + " of SHA-256 " +
         sha256_of_file(files, manifest, files.size(manifest)).substr(0, 12);
}

// `ranks`: those that this one has joined, from then on; null where there are no others.
ExitCode train(int argc, const char* const* argv, JoinedRanks*& ranks) {
  const TrainArguments arguments = parse_train_arguments(argc, argv);
  if (print_text_only(arguments, "dit-train", train_help)) return ExitCode::done;
  if (arguments.doctor) {
    std::printf("%s", doctor().c_str());
    return ExitCode::done;
  }
  if (arguments.keys) {
    std::printf("%s", key_page(*arguments.keys).c_str());
    return ExitCode::done;
  }
  FileSystem& files = posix_file_system();
  if (!arguments.init.empty()) return write_first(arguments, files);
  std::filesystem::path checkpoint;
  const auto word = policies::parse_enum<ResumeWord>(arguments.resume);
  if (!arguments.resume.empty() && !word) checkpoint = find_checkpoint(files, arguments.resume, "");
  LoadedConfig loaded = arguments.config.empty()
                            ? resumed_config(files, checkpoint, arguments.set)
                            : load_config(files, config_file(arguments.config), arguments.set);
  const std::optional<Launch> launch = launch_from([](const char* name) { return std::getenv(name); });
  resolve_threads(loaded, launch && std::getenv("OMP_NUM_THREADS") == nullptr ? launch->ranks_here : 1);
  if (!arguments.print_config) ranks = join(launch, loaded);
  if (word == ResumeWord::latest)
    checkpoint = find_checkpoint(files, arguments.resume, loaded.config.train.out);
  const bool is_automatic = word == ResumeWord::automatic;
  if (is_automatic) checkpoint = checkpoint_in(files, loaded.config.train.out).value_or("");
  std::optional<int64_t> micro_batches;
  if (!checkpoint.empty()) {
    const bool is_read = arguments.config.empty() && !keys_of(arguments.set).contains("train.accumulate");
    micro_batches = micro_batches_of(is_read ? loaded : resumed_config(files, checkpoint, {}));
  }
  share_out(loaded, launch ? launch->ranks : 1, micro_batches);
  if (arguments.print_config) {
    if (!launch || launch->rank == 0) std::printf("%s", printable(print_config(loaded)).c_str());
    return ExitCode::done;
  }

  const std::string name =
      ranks == nullptr ? arguments.device : device_of_rank(arguments.device, launch->rank_here);
  const c10::Device device = open_device(name, loaded.config.memory.budget);
  if (ranks != nullptr) {
    check_backend(loaded, device);
    ranks->take_device(device, nccl_library());
  }
  if (device.is_cuda()) take_cuda_kernels(loaded.config.policies.fusion);
  if (ranks != nullptr) {
    agree_on_start(*ranks, loaded, device,
                   {{"program", program_version()}, {"checkpoint", name_of(files, checkpoint)}});
  }
  SteadyClock clock;
  catch_stop_signals();
  const OpenData open = [&](const DataIdentity* before, const OpeningProgress& progress) {
    return family_of(loaded.config).open_data(loaded, before, progress);
  };
  if (ranks != nullptr && !ranks->leads()) {
    FollowerFiles own(files, loaded.config.train.out);
    SilentObserver nobody;
    RunWorld world{own, clock, nobody, &stop_requested};
    world.ranks = ranks;
    world.takes_over = is_automatic;
    world.shared_files = &files;
    return run_training(loaded, device, checkpoint, open, world).stopped ? ExitCode::stopped : ExitCode::done;
  }
  TrainObserver observer(arguments.verbose);
  if (!arguments.trace.empty())
    setenv("KINETO_LOG_LEVEL", "9", /*replace=*/0);  // else it prints when it begins
  const RunResult result =
      run_training(loaded, device, checkpoint, open,
                   {files, clock, observer, &stop_requested, &plan_in_child, [&] { return clock.seconds(); },
                    &resident_bytes, arguments.trace, is_automatic, ranks});
  if (!result.savings.empty() && arguments.verbose)
    std::printf("\n%s", savings_table(result.savings).c_str());
  if (!result.out_of_memory.empty()) {
    throw Error(ExitCode::memory, result.out_of_memory + "; " + result.next_step);
  }
  if (!result.stopped) return ExitCode::done;
  std::printf("stopped by a signal; %s\n", printable(result.next_step).c_str());
  return ExitCode::stopped;
}

// The rank that fails first says why; all end with its code.
Ending ending_among(JoinedRanks& ranks, const Ending& own) {
  const std::string text = ranks.name() + ": " + own.message;
  if (own.code != ExitCode::ranks) {
    const bool is_first = ranks.leave_word({own.code, text});
    return {own.code, is_first ? text : ""};
  }
  const std::optional<LastWord> word = ranks.last_word();
  if (word) return {word->code, ""};
  const std::string silent = ranks.silent_ranks();
  return {own.code,
          text + (silent.empty() ? "" : "; no word from rank " + silent) +
              "; start all ranks again: --resume auto goes on from the last checkpoint, if there is one"};
}

}  // namespace

int main(int argc, char** argv) {
  dtk::apply_process_settings();
  JoinedRanks* ranks = nullptr;
  bool has_failed = false;
  const int code = dtk::run_program(
      "dit-train",
      "lower data.batch, raise train.accumulate, switch on policies that are off, raise memory.budget "
      "where it is set, or use a smaller model",
      [&] { return train(argc, argv, ranks); },
      [&](const Ending& own) {
        has_failed = true;
        return ranks == nullptr ? own : ending_among(*ranks, own);
      });
  if (has_failed && ranks != nullptr) ranks->part();
  dtk::leave(code);
}
