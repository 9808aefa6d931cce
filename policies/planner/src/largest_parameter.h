// Reads the ledger's event log for the largest parameter and the temporaries of its size.
#pragma once
#include <dtk/planner/explain.h>
#include <dtk/policies/memory_accounts.h>

#include <string>
#include <vector>

namespace dtk::planner {

LargestParameter largest_parameter(const std::vector<policies::MemoryEvent>& events,
                                   const std::vector<std::string>& phases);

}  // namespace dtk::planner
