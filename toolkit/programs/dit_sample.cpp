// dit-sample: images from a trained diffusion transformer.
#include <dtk/policies/guards.h>
#include <dtk/toolkit/command_line.h>
#include <dtk/toolkit/device.h>
#include <dtk/toolkit/sample_command.h>

#include <cstdio>
#include <optional>
#include <string>

#include "process_settings.h"
#include "program.h"

namespace {

using namespace dtk;

ExitCode sample_images(int argc, const char* const* argv) {
  const SampleArguments arguments = parse_sample_arguments(argc, argv);
  if (arguments.help) {
    std::printf("%s", sample_help().c_str());
    return ExitCode::done;
  }
  if (arguments.version) return print_version("dit-sample");
  FileSystem& files = posix_file_system();
  const SampleSource source = open_sample_source(files, arguments);
  const c10::Device device = open_device(arguments.device);
  std::optional<policies::ThreadCountGuard> threads;
  const auto wanted = arguments.threads ? arguments.threads : source.config.train.threads;
  if (wanted) threads.emplace(static_cast<int>(*wanted));
  const SampleOptions options = sample_options(source.config, arguments);
  const std::vector<int64_t> labels = sample_labels(source.config, arguments);
  check_out(files, arguments, source.config);
  TerminalObserver observer;
  const std::string conversion = conversion_note(source.weights);
  if (!conversion.empty()) observer.message(conversion);
  catch_stop_signals();
  const at::Tensor samples = draw_samples(source, options, labels, device, [&](int64_t done, int64_t steps) {
    if (stop_requested()) return false;
    observer.sampling(done + 1, steps);
    return true;
  });
  if (!samples.defined()) {
    observer.message("stopped by a signal; nothing was written");
    return ExitCode::stopped;
  }
  write_samples(files, arguments, samples, labels);
  observer.message(std::to_string(labels.size()) + (labels.size() == 1 ? " sample" : " samples") + " with " +
                   source.weights.name + ": " + arguments.out);
  return ExitCode::done;
}

}  // namespace

int main(int argc, char** argv) {
  dtk::apply_process_settings();
  return dtk::run_program("dit-sample", "draw fewer samples at a time",
                          [&] { return sample_images(argc, argv); });
}
