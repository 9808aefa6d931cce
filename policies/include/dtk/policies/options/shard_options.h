// Options of the shard policy, free of LibTorch.
#pragma once
#include <dtk/policies/internal/byte_count.h>
#include <dtk/policies/internal/enabled.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dtk::policies {

/// optimizer: moments, sums of gradients and averages; parameters: the weights as well; automatic: a plan has
/// to choose.
enum class ShardLevel { optimizer, parameters, automatic };
constexpr auto enum_texts(ShardLevel) {
  return std::array{"optimizer", "parameters", "auto"};
}

/// As what divided matrices are sent; a rank's own part stays fp32.
enum class ShardGather { fp32, bf16 };
constexpr auto enum_texts(ShardGather) {
  return std::array{"fp32", "bf16"};
}

struct ShardOptions {
  // Default: where several ranks train, each updates a part of the parameters, and holds the moments, the
  // sums of gradients and the average of that part alone. true: refused where one rank trains alone. false:
  // each rank has all of it.
  Enabled enabled = Enabled::by_default;
  // What is divided. "parameters": a rank has its part of the weights, too, and those of a module while the
  // module runs, and while its gradients are computed: less memory, and more is sent. "auto": the first of
  // the two that fits memory.budget by its plan.
  ShardLevel level = ShardLevel::optimizer;
  // Modules, and all that lies in them, whose weights come when the module runs. Those of others come when a
  // pass begins, and where level = "parameters" they stay until their gradients are there.
  std::vector<std::string> targets = {"*"};
  // Neighbours among the parameters are gathered and summed together until they have so many bytes. Norms of
  // gradients are taken over parts of such units, so that another value is other rounding.
  ByteCount min_unit = {1 << 20};
  // Units that are gathered before their use where level = "parameters", while others are used.
  int64_t prefetch = 1;
  // "bf16" where level = "parameters": matrices of the modules that `targets` names are sent in half the
  // bytes. Where autocast rounds what these modules read, as in a DiT's blocks, no bit of a gradient changes.
  ShardGather gather = ShardGather::fp32;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, level, targets, min_unit, prefetch, gather] = self;
    visit("enabled", enabled, "\"default\" | true | false",
          "divide among several ranks what each would hold; true: refused on one rank");
    visit("level", level, "",
          "moments, sums of gradients and the average, or the weights too; auto: the first that fits "
          "memory.budget");
    visit("targets", targets, "", "modules whose weights come when they run, by patterns of their paths");
    visit("min_unit", min_unit, "[1, inf)", "parameters are sent together until they have so many bytes");
    visit("prefetch", prefetch, "[0, 64]", "units that come before their use where the weights are divided");
    visit("gather", gather, "", "type in which divided matrices are sent");
  }
  friend bool operator==(const ShardOptions&, const ShardOptions&) = default;
};

}  // namespace dtk::policies
