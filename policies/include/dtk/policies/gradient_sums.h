// How gradients of several ranks are added: options of gradient_exchange.h.
#pragma once
#include <array>
#include <cstdint>

namespace dtk::policies {

/// How gradients are added. ordered: one micro-batch after the other, each sent; native: a rank adds its own,
/// and the backend's all-reduce adds those of the ranks, once a step: less is sent, and the bits are the same
/// at the same number of ranks only.
enum class GradientSums { ordered, native };
constexpr auto enum_texts(GradientSums) {
  return std::array{"ordered", "native"};
}

struct ExchangeOptions {
  GradientSums sums = GradientSums::ordered;
  int64_t min_unit = int64_t{1} << 20;  // bytes; neighbours are sent together until they have so many
};

}  // namespace dtk::policies
