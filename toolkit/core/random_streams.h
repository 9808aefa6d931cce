// One seed, many independent random streams: each use has a stream of its own, derived from the seed and a
// name, so that adding one changes no other.
#pragma once
#include <cstdint>
#include <string_view>

namespace dtk {

/// Seed of the stream `name` of a run with `seed`. Pure.
uint64_t stream_seed(int64_t seed, std::string_view name);

}  // namespace dtk
