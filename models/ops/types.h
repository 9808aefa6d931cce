// From the types of tensors to those of C++.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "ops/cpu_kernels.h"

namespace dtk::ops {

template <class X>
using Accumulated = std::conditional_t<std::is_same_v<X, double>, double, float>;

/// Which of the types that any of the operators takes one of them does.
struct AnyTypes {
  template <class X, class Row, class Other>
  static constexpr bool kTakes = true;
};
/// A wide row does not stand beside narrow tokens, of which each sample has its own.
struct RowsOfSamples {
  template <class X, class Row, class Other>
  static constexpr bool kTakes = std::is_same_v<X, Row> || std::is_same_v<X, float>;
};
struct ResultAsTokens {
  template <class X, class Row, class Other>
  static constexpr bool kTakes = std::is_same_v<X, Other>;
};
struct OneType {
  template <class X, class Row, class Other>
  static constexpr bool kTakes = std::is_same_v<X, Row>&& std::is_same_v<X, Other>;
};

/// fn(X(), row type(), other type()) for what `Which` takes; false for other types.
template <class Which, class Fn>
bool with_types(const Types& types, const Fn& fn) {
  bool taken = false;
  const auto offer = [&]<class X, class Row, class Other>(X x, Row row, Other other) {
    if constexpr (Which::template kTakes<X, Row, Other>) {
      if (types.x != c10::CppTypeToScalarType<X>::value ||
          types.row != c10::CppTypeToScalarType<Row>::value ||
          types.other != c10::CppTypeToScalarType<Other>::value)
        return;
      fn(x, row, other);
      taken = true;
    }
  };
  offer(float(), float(), float());
  offer(double(), double(), double());
  const auto offer_half = [&](auto half) {
    offer(float(), half, half);
    offer(float(), float(), half);
    offer(half, half, half);
    offer(half, float(), half);
  };
  offer_half(c10::BFloat16());
  offer_half(c10::Half());
  return taken;
}

}  // namespace dtk::ops
