// Options of the precision policy, free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>
#include <dtk/policies/internal/enabled.h>

#include <string>
#include <vector>

namespace dtk::policies {

/// What "default" means on a CPU, where bf16 is fast only with the right instructions: `probe` leaves the
/// choice to a measurement before the run (precision_probe.h), and a saved configuration holds its outcome.
enum class CpuPrecision { probe, bf16, fp32 };
constexpr auto enum_texts(CpuPrecision) {
  return std::array{"probe", "bf16", "fp32"};
}

struct PrecisionOptions {
  Enabled enabled = Enabled::by_default;
  CpuPrecision cpu = CpuPrecision::probe;
  // Modules that run in fp32 although the policy is on; globs as those of checkpointing. Ends whose output
  // needs more than the 8 significant bits of bf16 belong here.
  std::vector<std::string> fp32 = {};
  // What `cpu` was chosen by where a measurement chose it, for the report; no key of a configuration.
  std::string cpu_measured = {};

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, cpu, fp32, cpu_measured] = self;
    visit("enabled", enabled, "\"default\" | true | false",
          "compute in bf16 by autocast; weights, gradients and losses stay fp32");
    visit("cpu", cpu, "", "what the default is on a CPU: the faster in trial steps, bf16 or fp32");
    visit("fp32", fp32, "", "modules that compute in fp32 all the same, by patterns of their paths");
  }
  /// Equal in what a configuration says.
  friend bool operator==(const PrecisionOptions& a, const PrecisionOptions& b) {
    return a.enabled == b.enabled && a.cpu == b.cpu && a.fp32 == b.fp32;
  }
};

}  // namespace dtk::policies
