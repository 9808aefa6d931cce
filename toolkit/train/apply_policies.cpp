#include "toolkit/train/apply_policies.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

namespace dtk {

policies::PolicySet put_policies_in(const policies::PolicyOptions& options, models::Seam& seam,
                                    const models::NamedTensors& parameters,
                                    const std::vector<std::string>& paths, bool training,
                                    policies::Shards* shards) {
  policies::Seam own;
  own.run = seam.run;
  own.keep = seam.keep;
  own.attention = seam.attention;
  own.rows = seam.rows;
  own.fuses = seam.fuses;
  own.divides_tokens = seam.divides_tokens;
  own.taps = static_cast<policies::Taps>(seam.taps);
  own.policies = seam.policies;
  policies::PolicySet set(options, {parameters.front().second.device(), parameters, paths, training, shards},
                          own);
  seam.run = std::move(own.run);
  seam.keep = std::move(own.keep);
  seam.attention = std::move(own.attention);
  seam.rows = std::move(own.rows);
  seam.fuses = std::move(own.fuses);
  seam.divides_tokens = own.divides_tokens;
  seam.taps = static_cast<models::Taps>(own.taps);
  seam.policies = std::move(own.policies);
  return set;
}

std::unique_ptr<policies::Shards> shards_of(const RunConfig& config, const TrainableModel& model,
                                            const Ranks* ranks) {
  policies::ShardLayout layout{.divides = config.policies.shard.enabled != policies::Enabled::off,
                               .min_unit = config.policies.shard.min_unit.bytes,
                               .norm_parts = config.train.accumulate,
                               .modules = model.weight_paths(),
                               .targets = config.policies.shard.targets,
                               .level = config.policies.shard.level,
                               .prefetch = config.policies.shard.prefetch,
                               .gather = config.policies.shard.gather};
  const models::NamedTensors parameters = reached_parameters(model);
  if (ranks == nullptr) return std::make_unique<policies::Shards>(parameters, layout);
  return std::make_unique<policies::Shards>(ranks->group(), parameters, layout);
}

}  // namespace dtk
