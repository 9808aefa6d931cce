#include "toolkit/plan/calibrate.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "toolkit/core/byte_size.h"
#include "toolkit/core/errors.h"
#include "toolkit/device/cuda_driver.h"
#include "toolkit/device/device.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/run/run.h"
#include "toolkit/train/precision_choice.h"

namespace dtk {
namespace {

std::vector<LoadedConfig> possible(const LoadedConfig& loaded) {
  if (!precision_is_open(loaded.config, c10::kCPU)) return {loaded};
  std::vector<LoadedConfig> both;
  for (const char* precision : {"bf16", "fp32"}) {
    both.push_back(loaded);
    both.back().config.policies.precision.cpu = precision;
  }
  return both;
}

// 90 for Hopper; 0, which no formula has, if the driver does not say.
int compute_capability(int index) {
  void* const library = cuda_driver();
  if (library == nullptr) return 0;
  const auto attribute = cuda_function<int(int*, int, int)>(library, "cuDeviceGetAttribute");
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int major = 0, minor = 0;
  const bool known =
      attribute != nullptr && attribute(&major, kMajor, index) == 0 && attribute(&minor, kMinor, index) == 0;
  return known ? major * 10 + minor : 0;
}

std::string summary(const Calibration& calibration, const std::string& file) {
  if (calibration.device != "cpu") {
    std::string text = file + ": " + calibration_text(calibration) + "\n";
    for (const planner::MeasuredTerm& term : calibration.terms) {
      text += "  " + term.name + ", " + term.what + ": " + std::to_string(term.bytes) +
              " bytes, by the formula " + std::to_string(term.by_formula) + "\n";
    }
    return text;
  }
  int64_t most = 0, with = 0;
  for (const auto& [call, bytes] : calibration.scratch) {
    most = std::max(most, bytes.most);
    with += bytes.most > 0 ? 1 : 0;
  }
  return file + ": scratch of " + std::to_string(calibration.scratch.size()) + " calls, " +
         std::to_string(with) + " of which take any, at most " + readable_bytes(most) + "; " +
         calibration_text(calibration) + "\n";
}

}  // namespace

Calibration calibrate_cpu(LoadedConfig loaded, std::optional<int64_t> limit) {
  const auto threads = static_cast<int>(loaded.config.train.threads.value());
  // Whatever is computed again calls the kernels of the forward pass.
  if (placement_is_open(loaded.config)) loaded.config.policies.checkpoint.keep = "block";
  Calibration calibration = calibration_of_this_cpu(threads);
  for (const LoadedConfig& one : possible(loaded)) {
    const Plan plan = make_plan(one, c10::kCPU, {.note_calls = true});
    if (limit && plan.bytes_in(Room::allocator) > *limit) continue;
    at::set_num_threads(threads);
    calibration.scratch.merge(planner::measure_scratch(*plan.scratch.calls));
  }
  return calibration;
}

Calibration calibrate_cuda() {
  if (!device_memory(c10::Device("cuda:0"))) {
    throw ConfigError(
        "--calibrate: this machine has no cuda:0 to measure; with --device cpu the scratch of the CPU's "
        "kernels is "
        "measured");
  }
  const c10::Device device = open_device("cuda:0");
  Calibration calibration = calibration_of_cuda(device_name(device));
  calibration.terms = planner::measure_device_terms(device, compute_capability(device.index()));
  return calibration;
}

void run_calibration(const PlanArguments& arguments, FileSystem& files,
                     const std::function<void(const std::string&)>& print) {
  Calibration calibration;
  if (arguments.device == "cpu") {
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

planner::RehearsalOptions options_of(const PlanArguments& arguments,
                                     const std::optional<Calibration>& measured) {
  planner::RehearsalOptions options;
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

planner::RehearsalOptions with_calibration(planner::RehearsalOptions options, const Calibration& measured) {
  if (measured.device == "cpu") {
    options.scratch = &measured.scratch;
    options.scratch_source = calibration_text(measured);
  } else {
    options.terms.measured = measured.terms;
    options.terms.measured_on = measured.machine + ", " + measured.date;
  }
  return options;
}

}  // namespace dtk
