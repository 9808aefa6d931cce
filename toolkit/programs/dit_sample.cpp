// dit-sample: images from a trained diffusion transformer, trajectories from a trained driving planner.
#include <dtk/policies/guards.h>

#include <cstdio>
#include <optional>
#include <string>

#include "process_settings.h"
#include "toolkit/commands/arguments.h"
#include "toolkit/commands/sample.h"
#include "toolkit/commands/sample_frames.h"
#include "toolkit/device/device.h"
#include "toolkit/programs/terminal.h"

namespace {

using namespace dtk;

KeepGoing until_stopped(RunObserver& observer) {
  return [&observer](int64_t done, int64_t steps) {
    if (stop_requested()) return false;
    observer.sampling(done + 1, steps);
    return true;
  };
}

void say_conversion(RunObserver& observer, const SampleSource& source) {
  const std::string conversion = conversion_note(source.weights);
  if (!conversion.empty()) observer.message(conversion);
}

ExitCode say_stopped(RunObserver& observer) {
  observer.message("stopped by a signal; nothing was written");
  return ExitCode::stopped;
}

/// "60 frames with the EMA weights of runs/mine: drawn"
std::string done_line(size_t count, const std::string& one, const SampleSource& source,
                      const std::string& place) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s") + " with " + source.weights.name + ": " +
         place;
}

ExitCode sample_images(const SampleSource& source, const SampleArguments& arguments, c10::Device device) {
  FileSystem& files = posix_file_system();
  const SampleOptions options = sample_options(source.config, arguments);
  const std::vector<int64_t> labels = sample_labels(source.config, arguments);
  check_out(files, arguments, source.config);
  TerminalObserver observer;
  say_conversion(observer, source);
  catch_stop_signals();
  const at::Tensor samples = draw_samples(source, options, labels, device, until_stopped(observer));
  if (!samples.defined()) return say_stopped(observer);
  write_samples(files, arguments, samples, labels);
  observer.message(done_line(labels.size(), "sample", source, arguments.out));
  return ExitCode::done;
}

ExitCode sample_frames(const SampleSource& source, const SampleArguments& arguments, c10::Device device) {
  FileSystem& files = posix_file_system();
  check_out_for_frames(files, arguments.out);
  const auto frames = open_sample_frames(source, arguments);
  const std::string list = sample_frames_list(*frames);
  TerminalObserver observer;
  for (const std::string& line : sample_frames_lines(frames)) observer.message(line);
  say_conversion(observer, source);
  catch_stop_signals();
  const auto trajectories = draw_trajectories(source, arguments, *frames, device, until_stopped(observer));
  if (trajectories.empty()) return say_stopped(observer);
  write_trajectories(files, arguments.out, trajectories, list);
  observer.message(done_line(static_cast<size_t>(frames->size()), "frame", source, arguments.out));
  return ExitCode::done;
}

ExitCode run(int argc, const char* const* argv) {
  const SampleArguments arguments = parse_sample_arguments(argc, argv);
  if (arguments.help) {
    std::printf("%s", sample_help().c_str());
    return ExitCode::done;
  }
  if (arguments.version) return print_version("dit-sample");
  const SampleSource source = open_sample_source(posix_file_system(), arguments);
  check_classes_or_frames(source, arguments);
  const c10::Device device = open_device(arguments.device);
  std::optional<policies::ThreadCountGuard> threads;
  const auto wanted = arguments.threads ? arguments.threads : source.config.train.threads;
  if (wanted) threads.emplace(static_cast<int>(*wanted));
  return source.config.drives() ? sample_frames(source, arguments, device)
                                : sample_images(source, arguments, device);
}

}  // namespace

int main(int argc, char** argv) {
  dtk::apply_process_settings();
  return dtk::run_program("dit-sample", "draw fewer samples at a time", [&] { return run(argc, argv); });
}
