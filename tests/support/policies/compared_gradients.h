// How the gradients of two runs compare.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk::bench {

using Gradients = std::vector<std::vector<float>>;  // by parameter

/// Differences of at most so many neighbouring floats are stated in ulps.
constexpr int64_t kNearUlps = 4096;

/// "bit-equal"; "within N ulp" up to kNearUlps; else "numerics changed, max relative error X", the largest of
/// all tensors: L2 norm of the difference by that of the reference. Both have the same sizes.
std::string compared(const Gradients& seen, const Gradients& reference);

}  // namespace dtk::bench
