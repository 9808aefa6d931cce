// Files hold whole tensors, whatever the ranks have of them.
#pragma once
#include <dtk/models/layers.h>
#include <dtk/policies/shards.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/io/stored_tensor.h"

namespace dtk {

/// `own`: what this rank has of a parameter, as Shards::own(), or of what is as large, such as a moment. All
/// ranks write it at the same place among others; `shards` must outlive the result.
WrittenTensor written_whole(const policies::Shards& shards, size_t parameter, const std::string& name,
                            const at::Tensor& own);
/// The part of a parameter's stored tensor that this rank has; `stored` itself where it is of none, or has
/// another shape.
StoredTensor stored_own_part(const policies::Shards& shards, std::optional<size_t> parameter,
                             const StoredTensor& stored);
/// Where weights are divided, `stored` and `into`, parameters, become the parts of them that this rank has.
void take_own_parts(const policies::Shards& shards, std::vector<StoredTensor>& stored,
                    models::NamedTensors& into);

}  // namespace dtk
