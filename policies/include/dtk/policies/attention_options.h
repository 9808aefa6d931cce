// Options of the attention policy, free of LibTorch.
#pragma once
#include <dtk/policies/enabled.h>

namespace dtk::policies {

struct AttentionOptions {
  // Default: fused where a kernel exists, the rest runs materialised and is listed. true: what has no fused
  // kernel is refused. false: all attention stores its weights, the baseline.
  Enabled enabled = Enabled::by_default;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled] = self;
    visit("enabled", enabled, "\"default\" | true | false");
  }
  friend bool operator==(const AttentionOptions&, const AttentionOptions&) = default;
};

}  // namespace dtk::policies
