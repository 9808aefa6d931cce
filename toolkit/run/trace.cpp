#include "toolkit/run/trace.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <fstream>
#include <set>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities(c10::Device device) {
  std::set<ActivityType> seen = {ActivityType::CPU};
  if (device.is_cuda()) seen.insert(ActivityType::CUDA);
  return seen;
}

torch::profiler::impl::ProfilerConfig settings() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO,
                                               /*report_input_shapes=*/true, /*profile_memory=*/true);
}

}  // namespace

StepTrace::StepTrace(std::filesystem::path file, c10::Device device)
    : file_(std::move(file)), device_(device) {
  // Found out before hours of training, not after. What is there stays until a trace is complete.
  const bool was_there = std::filesystem::exists(file_);
  if (!std::ofstream(file_, std::ios::app))
    throw FileError("--trace " + file_.string() + ": cannot be written");
  if (!was_there) std::filesystem::remove(file_);
}

StepTrace::~StepTrace() {
  if (!recording_) return;
  step_.reset();
  try {
    profiler::disableProfiler();
  } catch (const std::exception&) {  // nothing of it is wanted any more
  }
}

void StepTrace::begin_step() {
  if (++begun_ == kWarmUp + 1) {
    profiler::prepareProfiler(settings(), activities(device_));
    profiler::enableProfiler(settings(), activities(device_));
    recording_ = true;
  }
  if (!recording_) return;
  step_.emplace(at::RecordScope::USER_SCOPE);
  if (step_->isActive()) step_->before(fmt::format("step {} of the process", begun_));
}

std::string StepTrace::end_step() {
  if (!recording_) return "";
  step_.reset();
  if (begun_ < kWarmUp + kSteps) return "";
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  recording_ = false;
  profiler::disableProfiler()->save(file_.string());
  if (!std::filesystem::exists(file_))
    throw FileError("--trace " + file_.string() + ": could not be written");
  return fmt::format(
      "trace of steps {} to {} of the process: {}; open it in chrome://tracing or ui.perfetto.dev",
      kWarmUp + 1, kWarmUp + kSteps, file_.string());
}

std::string StepTrace::why_none() const {
  if (begun_ >= kWarmUp + kSteps) return "";
  return fmt::format("--trace {}: not written, as this process made {} steps; it is of steps {} to {}",
                     file_.string(), begun_, kWarmUp + 1, kWarmUp + kSteps);
}

}  // namespace dtk
