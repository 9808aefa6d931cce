// How gradients of several ranks are added.
#pragma once
#include <array>

namespace dtk::policies {

/// ordered: one micro-batch after the other, each sent; native: a rank adds its own, and sends them once a
/// step: less is sent, and the bits are the same at the same number of ranks only.
enum class GradientSums { ordered, native };
constexpr auto enum_texts(GradientSums) {
  return std::array{"ordered", "native"};
}

}  // namespace dtk::policies
