// The versions of LibTorch that plans know, and what differs between them for a plan.
#pragma once
#include <torch/version.h>

#include <compare>
#include <string>

namespace dtk::planner {

struct TorchVersion {
  int major = 0, minor = 0;

  auto operator<=>(const TorchVersion&) const = default;
};

struct PlannedTorch {
  TorchVersion version;
  long cudnn = 0;  // of cuDNN's that the torch wheel for CUDA 13 asks for, as cudnnGetVersion() gives it
};

/// Whose operators and kernels have been compared with what a plan makes of them.
inline constexpr PlannedTorch kPlannedTorch[] = {
    {{2, 11}, 91900}, {{2, 12}, 92000}, {{2, 13}, 92000}, {{2, 14}, 92400}, {{2, 15}, 92600},
};

/// The one that this library was compiled with.
TorchVersion compiled_torch();

/// The facts of `version`; of the nearest before it, or the first, where plans do not know it.
const PlannedTorch& planned_torch(TorchVersion version = compiled_torch());

/// Why there are no plans with `version`, and what to check before there can be; "" where there are.
std::string unplanned_torch(TorchVersion version = compiled_torch());

}  // namespace dtk::planner
