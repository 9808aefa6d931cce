#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/numbers.h"
#include "toolkit/device/device.h"
#include "toolkit/plan/plan.h"
#include "toolkit/report/level_choice.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/run/run.h"
#include "toolkit/train/precision_choice.h"

namespace dtk {
namespace {

std::vector<LoadedConfig> possible(const LoadedConfig& loaded) {
  if (!precision_is_open(loaded.config, c10::kCPU)) return {loaded};
  std::vector<LoadedConfig> both;
  for (const auto precision : {policies::CpuPrecision::bf16, policies::CpuPrecision::fp32}) {
    both.push_back(loaded);
    both.back().config.policies.precision.cpu = precision;
  }
  return both;
}

// 0, which no formula has, where the driver does not say.
planner::DeviceTermOptions numbers_of(int index) {
  planner::DeviceTermOptions numbers{
      .compute_capability = 0, .multiprocessors = 0, .threads_per_multiprocessor = 0};
  void* const library = cuda_driver();
  if (library == nullptr) return numbers;
  auto* const attribute = cuda_function<int(int*, int, int)>(library, "cuDeviceGetAttribute");
  if (attribute == nullptr) return numbers;
  // CU_DEVICE_ATTRIBUTE_...
  constexpr int kMultiprocessors = 16, kThreads = 39, kMajor = 75, kMinor = 76;
  int major = 0, minor = 0;
  if (attribute(&major, kMajor, index) == 0 && attribute(&minor, kMinor, index) == 0)
    numbers.compute_capability = major * 10 + minor;
  attribute(&numbers.multiprocessors, kMultiprocessors, index);
  attribute(&numbers.threads_per_multiprocessor, kThreads, index);
  return numbers;
}

}  // namespace

Calibration calibrate_cpu(LoadedConfig loaded, std::optional<int64_t> limit,
                          const std::function<bool()>& goes_on) {
  const auto threads = static_cast<int>(loaded.config.train.threads.value());
  // Whatever is recomputed calls the kernels of the forward pass.
  if (placement_is_open(loaded.config)) loaded.config.policies.checkpoint.keep = policies::KeepWord::block;
  take_level(loaded.config, policies::ShardLevel::optimizer);  // likewise those of any level
  Calibration calibration = calibration_of_this_cpu(threads);
  for (const LoadedConfig& one : possible(loaded)) {
    const Plan plan = make_plan(one, c10::kCPU, {.note_calls = true});
    if (!plan.need_in(Capacity::allocator).fits(limit)) continue;
    at::set_num_threads(threads);
    calibration.scratch.merge(planner::measure_scratch(*plan.scratch.calls, goes_on));
  }
  return calibration;
}

Calibration calibrate_cuda() {
  if (!device_memory(c10::Device("cuda:0"))) {
    throw ConfigError(
        "--calibrate: this machine has no cuda:0 to measure; with --device cpu the scratch of the CPU's "
        "kernels is measured");
  }
  const c10::Device device = open_device("cuda:0");
  Calibration calibration = calibration_of_cuda(device_name(device));
  calibration.terms = planner::measure_device_terms(device, numbers_of(device.index()));
  return calibration;
}

planner::SimulationOptions with_calibration(planner::SimulationOptions options, const Calibration& measured) {
  if (measured.device == PlannedDevice::cpu) {
    options.scratch = &measured.scratch;
    options.scratch_source = calibration_text(measured);
  } else {
    options.terms.measured = measured.terms;
    options.terms.measured_on = measured.machine + ", " + measured.date;
  }
  return options;
}

}  // namespace dtk
