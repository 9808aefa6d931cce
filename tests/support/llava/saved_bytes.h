// What autograd saves for backward, by module.
#pragma once
#include <c10/core/StorageImpl.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace dtk::test {

/// Notes each storage that autograd saves, once, for the module that saved it first. Parameters do not count,
/// nor do casts of them.
class SavedBytes final : public policies::SavedTensorLayer {
 public:
  std::unique_ptr<policies::SavedTensor> pack(const at::Tensor& tensor,
                                              const policies::SavedTensorStack& below) override {
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (!policies::saving_weight() && !policies::saving_weight_cast() && seen_.insert(storage).second)
      bytes[policies::module_path()] += static_cast<int64_t>(storage->nbytes());
    return below.pack(tensor);
  }
  std::map<std::string, int64_t> bytes;

 private:
  std::set<const c10::StorageImpl*> seen_;  // none dies while the graph lives
};

}  // namespace dtk::test
