// Where the divided weights of a unit are while they are whole.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/shards.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace dtk::policies {

struct Shards::Home {
  at::Tensor whole = {};  // (elements of the unit); its storage has memory while the unit is whole
  at::Tensor own = {};    // (elements of the own part)
  std::string complaint;  // of who reads it while it is not there
  size_t members = 0;
  int64_t uses = 0;             // modules that run
  size_t without_gradient = 0;  // members that a backward pass has yet to reach; 0: none is under way
  bool is_whole = false;

  bool is_used() const { return uses > 0 || without_gradient > 0; }
  c10::StorageImpl& storage() const { return *whole.storage().unsafeGetStorageImpl(); }
  // A backward pass under way stays as it is.
  void use_until_gradients() {
    if (without_gradient == 0) without_gradient = members;
  }
  void take_memory();
  void let_go();
};

}  // namespace dtk::policies
