// Random jobs for comparing plans with runs: every kind of model, data, objective, sampler and policy, each
// small.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk::bench {

/// Case number `index` of `seed`, as "key=value" for parse_config(); a pure function of the two. What is
/// written has a use, so that no rule refuses it.
std::vector<std::string> plan_case(uint64_t seed, uint64_t index);
/// Likewise of a LLaVA with `vocabulary` words: parts that are trained, bases, adapters, policies.
std::vector<std::string> llava_case(uint64_t seed, uint64_t index, int64_t vocabulary = 61);
/// Likewise of a VGGT: heads, sizes, policies of training, or of an inference, whose frames `frames` gets; 0 where
/// it is trained.
std::vector<std::string> vggt_case(uint64_t seed, uint64_t index, int64_t& frames);

}  // namespace dtk::bench
