#include "shard/rounded_reads.h"

#include <c10/util/StringUtil.h>

namespace dtk::policies {

RoundedReads::RoundedReads(const Shards& shards, std::string_view module, OperatorScope* outer)
    : OperatorScope(/*watch_operators=*/true), shards_(shards), module_(module), outer_(outer) {}

std::string RoundedReads::shown_by(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage() || tensor.scalar_type() != at::kFloat) return "";
  // Not is_alias_of(), which reads the storage of units that are elsewhere.
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  for (const ParameterUnit& unit : shards_.units()) {
    const auto& first = shards_.parameters()[unit.members.front().index].second;
    if (!unit.is_target || storage != first.storage().unsafeGetStorageImpl()) continue;
    for (const ParameterUnit::Member& member : unit.members) {
      const auto& [name, parameter] = shards_.parameters()[member.index];
      const int64_t at = tensor.storage_offset() - member.offset;
      if (at >= 0 && at < member.elements) return parameter.dim() > 1 ? name : "";
    }
  }
  return "";
}

void RoundedReads::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (!argument.isTensor()) continue;
    const std::string name = shown_by(argument.toTensor());
    if (name.empty()) continue;
    throw PolicyError("policies.shard.gather",
                      c10::str(" = \"bf16\" would change results: in ", module_, " ", op.operator_name().name,
                               " reads ", name,
                               " as it is, and autocast does not round it; name other modules in "
                               "policies.shard.targets, or remove it"));
  }
  outer_ == nullptr ? op.redispatchBoxed(keys, stack) : outer_->run(op, keys, stack);
}

void RoundedReads::mark(std::string_view name, const at::Tensor& value) {
  if (outer_ != nullptr) outer_->mark(name, value);
}

}  // namespace dtk::policies
