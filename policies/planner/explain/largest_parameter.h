// Reads the ledger's event log for the largest parameter and the temporaries of its size.
#pragma once
#include <dtk/planner/explain.h>
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtk::planner {

/// `names`: of parameters, by MemoryEvent::serial.
LargestParameter largest_parameter(const std::vector<policies::MemoryEvent>& events,
                                   const std::vector<std::string>& phases,
                                   const std::map<uint64_t, std::string>& names);

}  // namespace dtk::planner
