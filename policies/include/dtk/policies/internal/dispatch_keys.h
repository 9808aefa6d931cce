// What dtk borrows of LibTorch's process-wide tables: dispatch keys that no released LibTorch uses. They are
// named here only; the kind of debug information that is borrowed too is in torch_versions.h.
#pragma once
#include <c10/core/DispatchKey.h>

#include <array>
#include <cstddef>
#include <string>

namespace dtk::policies {

// Above autograd and autocast.
constexpr c10::DispatchKey kOperatorWatchKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKey kMutationKey = c10::DispatchKey::DeferredInit;
constexpr c10::DispatchKey kDropoutMaskKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;
// Backends that are none: their kernels lie under autograd's.
constexpr c10::DispatchKey kKeptResultKey = c10::DispatchKey::PrivateUse2;
constexpr c10::DispatchKey kKeptResultAutogradKey = c10::DispatchKey::AutogradPrivateUse2;
constexpr c10::DispatchKey kKnownStatisticsKey = c10::DispatchKey::PrivateUse3;
constexpr c10::DispatchKey kKnownStatisticsAutogradKey = c10::DispatchKey::AutogradPrivateUse3;
// Under autograd, above the kernels of devices. From 2.13 on LibTorch has a mode of its own for it, and
// registers nothing before that is used.
constexpr c10::DispatchKey kCpuShapesKey = c10::DispatchKey::Fake;

/// Who borrows a key, and with it all others of the same.
enum class KeyUser { policies, planner, toolkit };

struct BorrowedKey {
  c10::DispatchKey key;
  const char* name;  // as the LibTorch of this process must call it: another version numbers them otherwise
  KeyUser user;
  const char* use;  // "dtk uses it for ..."
};

constexpr std::array<BorrowedKey, 8> kBorrowedKeys{{
    {kOperatorWatchKey, "TESTING_ONLY_GenericMode", KeyUser::policies,
     "watching the operators of a checkpointed segment"},
    {kMutationKey, "DeferredInit", KeyUser::policies,
     "watching what a checkpointed segment changes in place"},
    {kKeptResultKey, "PrivateUse2", KeyUser::policies, "handing out results that checkpointing keeps"},
    {kKeptResultAutogradKey, "AutogradPrivateUse2", KeyUser::policies,
     "the gradients of results that checkpointing keeps"},
    {kKnownStatisticsKey, "PrivateUse3", KeyUser::policies, "recomputing batch norms by known statistics"},
    {kKnownStatisticsAutogradKey, "AutogradPrivateUse3", KeyUser::policies,
     "the gradients of recomputed batch norms"},
    {kCpuShapesKey, "Fake", KeyUser::planner, "planning operators on CPU tensors by their shapes"},
    {kDropoutMaskKey, "TESTING_ONLY_GenericWrapper", KeyUser::toolkit, "drawing dropout masks"},
}};

constexpr bool each_borrowed_once() {
  for (size_t i = 0; i < kBorrowedKeys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kBorrowedKeys[i].key == kBorrowedKeys[j].key) return false;
    }
  }
  return true;
}
static_assert(each_borrowed_once());

/// Says that the LibTorch of this process is another than the one dtk was compiled with, where its key has
/// not that name; else "".
std::string dispatch_key_mismatch(const BorrowedKey& borrowed);

/// Says which key of `user` is another one or has a fallback or a kernel already, and whose; "" where all are
/// free. Asked before dtk registers its own, which it does not tell from others.
std::string dispatch_key_conflict(KeyUser user);

}  // namespace dtk::policies
