// The part of memory_table() that a plan shows too; in memory_report.cpp.
#pragma once
#include <string>

#include "toolkit/report/memory_report.h"

namespace dtk {

/// A heading, then one row per phase and one column per category.
std::string phase_table(const MemoryReport& report);

}  // namespace dtk
