// A group of ranks of which one is planned: the others are nowhere.
#pragma once
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
}

namespace dtk::planner {

/// Rank `rank` of `ranks`, for a job that is simulated: collectives are done at once, take no memory, and
/// write nothing.
c10::intrusive_ptr<c10d::Backend> planned_group(int rank, int ranks);

}  // namespace dtk::planner
