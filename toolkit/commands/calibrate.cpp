#include "toolkit/commands/calibrate.h"

#include <algorithm>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/device/device.h"
#include "toolkit/plan/calibrate.h"
#include "toolkit/run/run.h"

namespace dtk {

namespace {

std::string summary(const Calibration& calibration, const std::string& file) {
  if (calibration.device != PlannedDevice::cpu) {
    std::string text = file + ": " + calibration_text(calibration) + "\n";
    for (const planner::MeasuredTerm& term : calibration.terms) {
      text += fmt::format("  {}, {}: {} bytes, by the formula {}\n", term.name, term.what, term.bytes,
                          term.by_formula);
    }
    return text;
  }
  int64_t most = 0, with = 0;
  for (const auto& [call, bytes] : calibration.scratch) {
    most = std::max(most, bytes.most);
    with += bytes.most > 0 ? 1 : 0;
  }
  return fmt::format("{}: scratch of {} calls, {} of which take any, at most {}; {}\n", file,
                     calibration.scratch.size(), with, readable_bytes(most), calibration_text(calibration));
}

}  // namespace

void run_calibration(const PlanArguments& arguments, FileSystem& files,
                     const std::function<void(const std::string&)>& print) {
  Calibration calibration;
  if (arguments.device == PlannedDevice::cpu) {
    LoadedConfig loaded = load_config(files, arguments.config, arguments.set);
    resolve_threads(loaded);
    calibration = calibrate_cpu(std::move(loaded));
  } else {
    calibration = calibrate_cuda();
  }
  write_file_atomically(files, arguments.calibrate, calibration_json(calibration));
  print(summary(calibration, arguments.calibrate));
}

std::optional<Calibration> calibration_for(const PlanArguments& arguments, FileSystem& files,
                                           const LoadedConfig& loaded, c10::Device device) {
  const std::string& file = arguments.calibration;
  if (file.empty()) return std::nullopt;
  const std::string place = "--calibration " + file;
  if (measures_here(arguments)) {
    // With --max-batch each batch has calls of its own.
    if (!arguments.max_batch.empty()) return std::nullopt;
    Calibration calibration = calibrate_cpu(loaded, available_bytes());
    if (calibration.scratch.empty())
      throw ConfigError(
          place +
          ": the job is larger than the memory that is free on this machine, so its kernels cannot "
          "be run here; leave it out, or measure a smaller data.batch");
    return calibration;
  }
  if (!files.exists(file))
    throw ConfigError(place + ": no such file; dit-plan --calibrate " + file + " writes it");
  if (files.is_folder(file))
    throw ConfigError(place + ": a folder; give a file that dit-plan --calibrate wrote");
  Calibration calibration = parse_calibration(files.read(file), place);
  check_calibration(calibration,
                    device.is_cpu() ? calibration_of_this_cpu(*loaded.config.train.threads)
                                    : calibration_of_cuda(calibration.machine),
                    place);
  return calibration;
}

planner::SimulationOptions options_of(const PlanArguments& arguments,
                                      const std::optional<Calibration>& measured) {
  planner::SimulationOptions options;
  options.fold = arguments.fold;
  const std::pair<const char*, bool planner::DeviceTermOptions::*> switches[] = {
      {"rounding", &planner::DeviceTermOptions::rounding},
      {"attention_scratch", &planner::DeviceTermOptions::attention_scratch},
      {"workspaces", &planner::DeviceTermOptions::workspaces},
      {"convolution_workspaces", &planner::DeviceTermOptions::convolution_workspaces},
      {"kernel_scratch", &planner::DeviceTermOptions::kernel_scratch},
      {"context", &planner::DeviceTermOptions::context},
      {"pinned", &planner::DeviceTermOptions::pinned}};
  for (const auto& [name, member] : switches) {
    const auto& without = arguments.without;
    if (std::find(without.begin(), without.end(), name) != without.end()) options.terms.*member = false;
  }
  return measured ? with_calibration(options, *measured) : options;
}

}  // namespace dtk
