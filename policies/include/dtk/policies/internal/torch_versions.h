// What differs between the versions of LibTorch that the policies are compiled with.
#pragma once
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <string_view>

#define DTK_TORCH_BEFORE(major, minor) \
  (TORCH_VERSION_MAJOR < (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR < (minor)))

namespace dtk::policies {

/// The stack of saved tensors: what is borrowed beside the keys of dispatch_keys.h.
#if DTK_TORCH_BEFORE(2, 13)  // a closed list of kinds, of which no released LibTorch uses this one; LibTorch
                             // cannot be asked who else does, as it can for keys (dispatch_keys.h)
constexpr auto kSavedTensorStackInfo = c10::DebugInfoKind::TEST_INFO_2;
inline constexpr std::string_view kSavedTensorStackName = "TEST_INFO_2";
#else
inline constexpr std::string_view kSavedTensorStackName = "DTK_SAVED_TENSORS";
// Not constexpr: under UBSan g++ 12 takes the address of an inline variable for one that may be null.
inline const c10::DebugInfoKind kSavedTensorStackInfo(&kSavedTensorStackName);
#endif

}  // namespace dtk::policies
