#include "support/policies/compared_gradients.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace dtk::bench {
namespace {

// Floats from one to the other.
int64_t ulps(float a, float b) {
  const auto place = [](float value) -> int64_t {
    const auto bits = std::bit_cast<int32_t>(value);
    return bits >= 0 ? bits : int64_t{std::numeric_limits<int32_t>::min()} - bits;
  };
  return std::abs(place(a) - place(b));
}

}  // namespace

std::string compared(const Gradients& seen, const Gradients& reference) {
  bool equal = true;
  int64_t most = 0;
  double largest = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const std::vector<float>&a = seen.at(i), &b = reference[i];
    equal = equal && std::memcmp(a.data(), b.data(), b.size() * sizeof(float)) == 0;
    double difference = 0, norm = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const double x = a.at(j), y = b[j];
      most = std::max(most, ulps(a[j], b[j]));
      difference += (x - y) * (x - y);
      norm += y * y;
    }
    if (norm > 0) largest = std::max(largest, std::sqrt(difference / norm));
  }
  if (equal) return "bit-equal";
  if (most <= kNearUlps) return "within " + std::to_string(most) + " ulp";
  char text[64];
  std::snprintf(text, sizeof text, "numerics changed, max relative error %.1e", largest);
  return text;
}

}  // namespace dtk::bench
