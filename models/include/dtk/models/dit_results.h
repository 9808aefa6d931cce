// Results that a program may name inside a DiT, free of LibTorch.
#pragma once
#include <array>

namespace dtk::models {

/// What each block offers to Seam::keep, in order.
inline constexpr std::array<const char*, 3> kept_results = {"attn_out", "proj_out", "fc2_out"};

}  // namespace dtk::models
