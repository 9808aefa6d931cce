// Options of the attention policy, free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>
#include <dtk/policies/internal/enabled.h>

namespace dtk::policies {

/// The fused kernel that LibTorch is to take on CUDA. Where that one is none for a call, as flash for fp32 or
/// a mask, it takes the memory-efficient one. LibTorch takes cuDNN's on compute capability 9.x and 10.x only.
enum class AttentionKernel { flash, efficient, cudnn };
constexpr auto enum_texts(AttentionKernel) {
  return std::array{"flash", "efficient", "cudnn"};
}

struct AttentionOptions {
  // Default: fused where a kernel exists, the rest runs materialised and is listed. true: what has no fused
  // kernel is refused. false: all attention stores its weights, the baseline.
  Enabled enabled = Enabled::by_default;
  // On CUDA. Flash is the default since every GPU from compute capability 8.0 on has it, with a scratch that
  // has a formula; cuDNN's was measured on one GPU.
  AttentionKernel kernel = AttentionKernel::flash;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, kernel] = self;
    visit("enabled", enabled, "\"default\" | true | false",
          "fused attention; false: weights are stored; true: what has no fused kernel is refused");
    visit("kernel", kernel, "", "that is asked for on CUDA");
  }
  friend bool operator==(const AttentionOptions&, const AttentionOptions&) = default;
};

}  // namespace dtk::policies
