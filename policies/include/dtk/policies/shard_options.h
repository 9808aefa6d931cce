// Options of the shard policy, free of LibTorch.
#pragma once
#include <dtk/policies/enabled.h>

namespace dtk::policies {

struct ShardOptions {
  // Default: where several ranks train, each updates a part of the parameters, and holds the moments, the
  // sums of gradients and the average of that part alone. true: refused where one rank trains alone. false:
  // each rank has all of it.
  Enabled enabled = Enabled::by_default;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled] = self;
    visit("enabled", enabled, "\"default\" | true | false");
  }
  friend bool operator==(const ShardOptions&, const ShardOptions&) = default;
};

}  // namespace dtk::policies
