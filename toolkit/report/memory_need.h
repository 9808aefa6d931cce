// Whether a plan fits: who decides it asks here. A search compares as it goes.
#pragma once
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dtk {

/// Whether `bytes` fit `limit`, if there is one.
constexpr bool fits_in(int64_t bytes, std::optional<int64_t> limit) {
  return !limit || bytes <= *limit;
}

/// What a planned run takes of the memory that has to hold it, and whether it fits.
struct MemoryNeed {
  policies::PhasePeak peak;  // of tensors on the device
  int64_t beside = 0;        // bytes that the device adds to them
  int64_t host = 0;          // bytes of host memory, where that is the device's own
  int64_t bytes() const { return peak.peak.bytes + beside + host; }
  bool fits(std::optional<int64_t> limit) const { return fits_in(bytes(), limit); }
};

/// For the end of a message about a limit of so few bytes that whoever set it may have meant gigabytes; ""
/// for a larger one.
std::string unit_hint(int64_t limit);

}  // namespace dtk
