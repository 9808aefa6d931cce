// A group of ranks of which one is planned: the others are nowhere.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <string>

namespace c10d {
class Backend;
}

namespace dtk::planner {

/// What a rank sends to others, by collective, as bytes: what a ring, or each pair by itself, needs at least.
struct SentBytes {
  std::map<std::string, int64_t> bytes = {};  // "alltoall", "broadcast", "allreduce"
};

/// Rank `rank` of `ranks`, for a job that is simulated: collectives are done at once, take no memory, and
/// write nothing. What it sends is added to `sent`, if given, which must outlive it.
c10::intrusive_ptr<c10d::Backend> planned_group(int rank, int ranks, SentBytes* sent = nullptr);

}  // namespace dtk::planner
