// Options of the EMA policy, free of LibTorch so that configuration code stays quick to compile.
#pragma once
#include <dtk/policies/enum_text.h>
#include <dtk/policies/internal/enabled.h>

#include <cstdint>

namespace dtk::policies {

/// Where the average lives: in host memory, or on the training device.
enum class EmaDevice { cpu, same };
constexpr auto enum_texts(EmaDevice) {
  return std::array{"cpu", "same"};
}

struct EmaOptions {
  Enabled enabled = Enabled::by_default;
  // Weight of the old average per step. Runs of a few thousand steps want 0.99 to 0.999.
  double decay = 0.9999;
  // Use min(decay, (1 + n) / (10 + n)) at step n: without it the initial weights, whose output is zero,
  // dominate a short run and it samples pure noise.
  bool warmup = true;
  // One update every so many steps, with the decays of all of them: fewer copies, an average of the same age.
  int64_t every = 1;
  EmaDevice device = EmaDevice::cpu;
  // Copy through pinned host memory. false where pinning is slow or scarce; copies then are slower.
  bool pinned = true;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, decay, warmup, every, device, pinned] = self;
    visit("enabled", enabled, "\"default\" | true | false",
          "keep an average of the weights, from which samples are drawn");
    visit("decay", decay, "[0, 1)", "weight of the old average each step");
    visit("warmup", warmup, "", "lower decays in the first steps, so that a short run forgets its beginning");
    visit("every", every, "[1, inf)", "steps between updates; each then counts for all of them");
    visit("device", device, "", "where the average lives: in host memory, or on the training device");
    visit("pinned", pinned, "", "copy through pinned host memory");
  }
  friend bool operator==(const EmaOptions&, const EmaOptions&) = default;
};

}  // namespace dtk::policies
