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

/// fn(X(), row type(), other type()) for what any of the operators takes; false for other types.
template <class Fn>
bool with_types(const Types& types, const Fn& fn) {
  using c10::ScalarType;
  const auto are = [&](ScalarType x, ScalarType row, ScalarType other) {
    return types.x == x && types.row == row && types.other == other;
  };
  constexpr ScalarType fp32 = ScalarType::Float, bf16 = ScalarType::BFloat16, fp16 = ScalarType::Half;
  if (are(fp32, fp32, fp32)) return fn(float(), float(), float()), true;
  if (are(fp32, bf16, bf16)) return fn(float(), c10::BFloat16(), c10::BFloat16()), true;
  if (are(fp32, fp32, bf16)) return fn(float(), float(), c10::BFloat16()), true;
  if (are(fp32, fp16, fp16)) return fn(float(), c10::Half(), c10::Half()), true;
  if (are(fp32, fp32, fp16)) return fn(float(), float(), c10::Half()), true;
  if (are(bf16, bf16, bf16)) return fn(c10::BFloat16(), c10::BFloat16(), c10::BFloat16()), true;
  if (are(bf16, fp32, bf16)) return fn(c10::BFloat16(), float(), c10::BFloat16()), true;
  if (are(fp16, fp16, fp16)) return fn(c10::Half(), c10::Half(), c10::Half()), true;
  if (are(fp16, fp32, fp16)) return fn(c10::Half(), float(), c10::Half()), true;
  constexpr ScalarType fp64 = ScalarType::Double;
  if (are(fp64, fp64, fp64)) return fn(double(), double(), double()), true;
  return false;
}

}  // namespace dtk::ops
