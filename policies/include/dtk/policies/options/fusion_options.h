// Options of the fusion policy, free of LibTorch.
#pragma once
#include <dtk/policies/internal/enabled.h>

namespace dtk::policies {

struct FusionOptions {
  // Default: modules call fused operators where they have both forms. true: a model that has none, or a
  // device without their kernels, is refused. false: LibTorch's operators one after the other.
  Enabled enabled = Enabled::by_default;
  // On CUDA too. Its kernels have not run on a GPU, so that modules call LibTorch's operators there unless
  // this is set.
  bool cuda = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, cuda] = self;
    visit("enabled", enabled, "\"default\" | true | false",
          "run element-wise operators as one; true: refused where there is nothing to fuse");
    visit("cuda", cuda, "", "on a GPU too, where these kernels have not been tried");
  }
  friend bool operator==(const FusionOptions&, const FusionOptions&) = default;
};

}  // namespace dtk::policies
