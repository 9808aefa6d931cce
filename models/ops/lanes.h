// Neighbouring channels in vector registers, in the type that sums have.
#pragma once
#include <ATen/cpu/vec/vec.h>

#include <cstdint>
#include <tuple>
#include <type_traits>

namespace dtk::ops {
inline namespace CPU_CAPABILITY {

template <class A>
struct Lanes {
  using Vector = at::vec::Vectorized<A>;
  static constexpr int64_t kHalf = Vector::size(), kCount = 2 * kHalf;
  /// As many as there are, known to the compiler.
  using All = std::integral_constant<int64_t, kCount>;

  Vector low{A(0)}, high{A(0)};

  Lanes() = default;
  Lanes(A value) : low(value), high(value) {}
  Lanes(Vector first, Vector second) : low(first), high(second) {}

  friend Lanes operator+(const Lanes& a, const Lanes& b) { return {a.low + b.low, a.high + b.high}; }
  friend Lanes operator-(const Lanes& a, const Lanes& b) { return {a.low - b.low, a.high - b.high}; }
  friend Lanes operator*(const Lanes& a, const Lanes& b) { return {a.low * b.low, a.high * b.high}; }
  friend Lanes operator/(const Lanes& a, const Lanes& b) { return {a.low / b.low, a.high / b.high}; }
  /// a·b + c
  friend Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
    return {at::vec::fmadd(a.low, b.low, c.low), at::vec::fmadd(a.high, b.high, c.high)};
  }
  A sum() const {
    alignas(64) A values[kHalf];
    (low + high).store(values);
    for (int64_t n = kHalf / 2; n > 0; n /= 2) {
      for (int64_t i = 0; i < n; ++i) values[i] += values[i + n];
    }
    return values[0];
  }
  /// The first `count`, and zeros.
  Lanes first(All) const { return *this; }
  Lanes first(int64_t count) const {
    const Vector zero(A(0));
    return {Vector::set(zero, low, count < kHalf ? count : kHalf),
            Vector::set(zero, high, count < kHalf ? 0 : count - kHalf)};
  }
};

inline Lanes<float> widened(const at::vec::Vectorized<c10::BFloat16>& halves) {
  const auto [low, high] = at::vec::convert_bfloat16_float(halves);
  return {low, high};
}
inline Lanes<float> widened(const at::vec::Vectorized<c10::Half>& halves) {
  const auto [low, high] = at::vec::convert_half_float(halves);
  return {low, high};
}
template <class T>
at::vec::Vectorized<T> narrowed(const Lanes<float>& lanes) {
  if constexpr (std::is_same_v<T, c10::Half>) {
    return at::vec::convert_float_half(lanes.low, lanes.high);
  } else {
    return at::vec::convert_float_bfloat16(lanes.low, lanes.high);
  }
}

template <class A, class T, class Count>
Lanes<A> load(const T* from, Count count) {
  using Vector = at::vec::Vectorized<A>;
  constexpr int64_t kHalf = Lanes<A>::kHalf;
  constexpr bool kAll = !std::is_same_v<Count, int64_t>;
  if constexpr (std::is_same_v<T, A>) {
    if constexpr (kAll) return {Vector::loadu(from), Vector::loadu(from + kHalf)};
    if (count <= kHalf) return {Vector::loadu(from, count), Vector(A(0))};
    return {Vector::loadu(from), Vector::loadu(from + kHalf, count - kHalf)};
  } else {
    at::vec::Vectorized<T> halves;
    if constexpr (kAll) {
      halves = at::vec::Vectorized<T>::loadu(from);
    } else {
      halves = at::vec::Vectorized<T>::loadu(from, count);
    }
    return widened(halves);
  }
}

template <class A, class T, class Count>
void store(const Lanes<A>& lanes, T* to, Count count) {
  constexpr int64_t kHalf = Lanes<A>::kHalf;
  constexpr bool kAll = !std::is_same_v<Count, int64_t>;
  if constexpr (std::is_same_v<T, A>) {
    if constexpr (kAll) {
      lanes.low.store(to);
      lanes.high.store(to + kHalf);
    } else {
      lanes.low.store(to, static_cast<int>(count < kHalf ? count : kHalf));
      if (count > kHalf) lanes.high.store(to + kHalf, static_cast<int>(count - kHalf));
    }
  } else {
    const auto halves = narrowed<T>(lanes);
    if constexpr (kAll) {
      halves.store(to);
    } else {
      halves.store(to, static_cast<int>(count));
    }
  }
}

/// fn(first channel, how many) through a row.
template <class A, class Fn>
void over_row(int64_t width, const Fn& fn) {
  int64_t d = 0;
  for (; d + Lanes<A>::kCount <= width; d += Lanes<A>::kCount) fn(d, typename Lanes<A>::All());
  if (d < width) fn(d, width - d);
}

// terms[0]·r^n + terms[1]·r^(n-1) + ...
template <class Vector, class... Terms>
Vector polynomial(const Vector& r, float first, Terms... terms) {
  Vector sum(first);
  ((sum = at::vec::fmadd(sum, r, Vector(terms))), ...);
  return sum;
}

// e^x for |x| <= 87, within 2 ulp: 2^n·p(r) with x = n·ln 2 + r, |r| <= ln 2 / 2, p of degree 7 (Cephes'
// expf).
inline at::vec::Vectorized<float> exponential(const at::vec::Vectorized<float>& x) {
  using Vector = at::vec::Vectorized<float>;
  using Integers = at::vec::Vectorized<int32_t>;
  const Vector n = (x * Vector(1.44269504088896341F)).round();
  Vector r = at::vec::fmadd(n, Vector(-0.693359375F), x);
  r = at::vec::fmadd(n, Vector(2.12194440e-4F), r);
  const Vector p = polynomial(r, 1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F,
                              1.6666665459e-1F, 5.0000001201e-1F, 1.0F, 1.0F);
  const Integers exponent = at::vec::convert_to_int_of_same_size(n) + Integers(127);
  return p * at::vec::cast<float, int32_t>(exponent << Integers(23));
}
inline at::vec::Vectorized<double> exponential(const at::vec::Vectorized<double>& x) {
  return x.exp();
}

}  // namespace CPU_CAPABILITY
}  // namespace dtk::ops
