#include "toolkit/train/shard_files.h"

namespace dtk {

WrittenTensor written_whole(const policies::Shards& shards, size_t parameter, const std::string& name,
                            const at::Tensor& own) {
  if (!shards.divides()) return {name, own};
  return {
      name, own.scalar_type(), shards.parameters()[parameter].second.sizes().vec(),
      [&shards, parameter, own](const WrittenTensor::Take& take) { shards.each_part(parameter, own, take); },
      [&shards, own](int64_t to) { shards.give_part(own, to); }};
}

StoredTensor stored_own_part(const policies::Shards& shards, std::optional<size_t> parameter,
                             const StoredTensor& stored) {
  if (!shards.divides() || !parameter || stored.shape != shards.parameters()[*parameter].second.sizes())
    return stored;
  const policies::ParameterPart part = shards.own_part(*parameter);
  return part_of(stored, part.begin, part.elements);
}

void take_own_parts(const policies::Shards& shards, std::vector<StoredTensor>& stored,
                    models::NamedTensors& into) {
  if (!shards.divides_weights()) return;
  for (StoredTensor& one : stored) one = stored_own_part(shards, shards.index_of(one.name), one);
  for (auto& [name, parameter] : into)
    if (const auto index = shards.index_of(name)) parameter = shards.own()[*index].second.detach();
}

}  // namespace dtk
