// A plan beside a run: whether it fits before it starts, and how it compares with what was measured.
#pragma once
#include <dtk/toolkit/config.h>
#include <dtk/toolkit/memory_report.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtk {

/// Reads what memory_json() wrote; of `host` its highest peak. Throws FileError beginning with `name`.
MemoryReport read_memory_json(std::string_view json, const std::string& name);
/// Of what dit-plan --json printed: bytes that LibTorch's allocator gives out beside the tensors; 0 if it
/// does not say.
int64_t read_beside(std::string_view json);

/// "planned peak 33.2 MiB in first_step; 20.1 GiB available". `available`: bytes that the device can give.
std::string plan_line(const MemoryReport& plan, std::optional<int64_t> available);

struct TooLarge {
  int64_t limit = 0;  // bytes
  std::string message;
};

/// Why the run cannot fit memory.budget or the device; nothing if it fits.
/// `beside`: bytes that the device's allocator gives out beside the tensors.
std::optional<TooLarge> too_large(const MemoryReport& plan, int64_t beside, const MemoryOptions& options,
                                  std::optional<int64_t> available);

/// A table for a terminal of 80 columns: bytes by phase, and below a phase the categories that differ; then
/// the host's peak, where the device is not the CPU. What kernels take for themselves (scratch) is measured
/// only.
std::string planned_against_measured(const MemoryReport& plan, const MemoryReport& measured);

}  // namespace dtk
