#include "toolkit/config/policy_switches.h"

namespace dtk {

using policies::CpuPrecision;
using policies::EmaDevice;
using policies::Enabled;
using policies::KeepWord;

namespace {

void set(Enabled& enabled, bool on) {
  if (on == (enabled != Enabled::off)) return;
  enabled = on ? Enabled::by_default : Enabled::off;
}

void switch_precision(policies::PrecisionOptions& options, c10::Device device, bool on) {
  set(options.enabled, on);
  if (on && device.is_cpu() && options.enabled == Enabled::by_default) options.cpu = CpuPrecision::bf16;
}

void switch_ema(policies::EmaOptions& options, c10::Device device, bool on) {
  if (on == (options.enabled != Enabled::off && options.device == EmaDevice::cpu)) return;
  if (on) options.enabled = Enabled::by_default;  // asked for, it would be refused where nothing can be moved
  if (on && device.is_cpu()) options.pinned = true;  // likewise
  options.device = on ? EmaDevice::cpu : EmaDevice::same;
}

}  // namespace

PolicySwitches switches_of(const RunConfig& config, c10::Device device) {
  const policies::PolicyOptions& options = config.policies;
  const auto is_on = [](const auto& one) { return one.enabled != Enabled::off; };
  const bool fp32_on_cpu = device.is_cpu() && options.precision.enabled == Enabled::by_default &&
                           options.precision.cpu == CpuPrecision::fp32;
  return {is_on(options.precision) && !fp32_on_cpu, is_on(options.attention),
          is_on(options.ema) && options.ema.device == EmaDevice::cpu, is_on(options.checkpoint)};
}

RunConfig with_switches(RunConfig config, c10::Device device, const PolicySwitches& on) {
  const PolicySwitches now = switches_of(config, device);
  if (on[0] != now[0]) switch_precision(config.policies.precision, device, on[0]);
  set(config.policies.attention.enabled, on[1]);
  switch_ema(config.policies.ema, device, on[2]);
  policies::CheckpointOptions& checkpoint = config.policies.checkpoint;
  set(checkpoint.enabled, on[3]);
  // Chosen for a job that recomputes; of one that does not, all there is to recompute.
  if (on[3] && checkpoint.keep.word == KeepWord::automatic) checkpoint.keep = KeepWord::block;
  return config;
}

}  // namespace dtk
