// What the files of this model have in common.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace dtk::models {

inline constexpr double kVggtEps = 1e-5;  // of norms, but for the encoder's and the modulated one
inline constexpr char kEncoder[] = "aggregator.patch_embed";

/// Of the frame or the global block of a pair.
inline std::string pair_path(bool global, int64_t pair) {
  return std::string("aggregator.") + (global ? "global" : "frame") + "_blocks." + std::to_string(pair);
}

/// Of what a dense head makes of a pair's result.
inline std::string project_path(const std::string& head, int64_t pair) {
  return head + ".projects." + std::to_string(pair);
}

}  // namespace dtk::models
