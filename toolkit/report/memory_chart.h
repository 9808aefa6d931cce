// Memory of a run as HTML: stacked bars by phase and owner, exact tables, what each policy saved.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "toolkit/report/memory_report.h"

namespace dtk {

/// Bars, one a phase, made of categories; the phase with the highest peak is marked, and in each what was
/// planned of it, where that is known.
std::string memory_bars(const MemoryReport& report, const std::optional<MemoryReport>& planned);
/// The same as a table of bytes, of the host too where it holds something.
std::string memory_bytes_table(const MemoryReport& report);
/// The owners with the most bytes at the instant of the highest peak.
std::string peak_owners_table(const MemoryReport& report);
/// One row a policy; without a policy "".
std::string policies_table(const std::vector<PolicySaving>& savings);

}  // namespace dtk
