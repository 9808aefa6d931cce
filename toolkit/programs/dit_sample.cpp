// dit-sample: images from a trained diffusion transformer, trajectories from a trained driving model.
#include <dtk/policies/guards.h>

#include <cstdio>
#include <optional>
#include <string>

#include "toolkit/commands/arguments.h"
#include "toolkit/commands/sample.h"
#include "toolkit/core/format.h"
#include "toolkit/device/device.h"
#include "toolkit/programs/process_settings.h"
#include "toolkit/programs/terminal.h"
#include "toolkit/run/messages.h"
#include "toolkit/train/model_family.h"

namespace {

using namespace dtk;

ExitCode sample(const SampleSource& source, const SampleArguments& arguments, c10::Device device) {
  FileSystem& files = posix_file_system();
  const std::unique_ptr<const Drawing> drawing = family_of(source.config).drawing(files, source, arguments);
  TerminalObserver observer;
  for (const std::string& line : drawing->notes()) observer.message(line);
  if (const RunData data = drawing->data(); data.all) {
    for (const std::string& line : data_lines(data, facts_of(source.config))) observer.message(line);
  }
  if (const std::string conversion = conversion_note(source.weights); !conversion.empty())
    observer.message(conversion);
  catch_stop_signals();
  if (!drawing->draw_to(files, device, until_stopped(observer, &stop_requested))) {
    observer.message("stopped by a signal; nothing was written");
    return ExitCode::stopped;
  }
  if (const std::string remark = drawing->remark(); !remark.empty()) observer.message(remark);
  observer.message(fmt::format("{} with {}: {}", drawing->counted(), source.weights.name, arguments.out));
  return ExitCode::done;
}

ExitCode run(int argc, const char* const* argv) {
  const SampleArguments arguments = parse_sample_arguments(argc, argv);
  if (print_text_only(arguments, "dit-sample", sample_help)) return ExitCode::done;
  const SampleSource source = open_sample_source(posix_file_system(), arguments);
  check_arguments(family_of(source.config), arguments,
                  arguments.checkpoint.empty() ? arguments.weights : arguments.checkpoint);
  const c10::Device device = open_device(arguments.device);
  std::optional<policies::ThreadCountGuard> threads;
  const auto wanted = arguments.threads ? arguments.threads : source.config.train.threads;
  if (wanted) threads.emplace(static_cast<int>(*wanted));
  return sample(source, arguments, device);
}

}  // namespace

int main(int argc, char** argv) {
  dtk::apply_process_settings();
  dtk::leave(dtk::run_program("dit-sample", "draw fewer samples at a time", [&] { return run(argc, argv); }));
}
