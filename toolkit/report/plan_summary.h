// A plan beside a run: whether it fits before it starts, and how it compares with what was measured.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "toolkit/config/config.h"
#include "toolkit/report/memory_need.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/report/placement.h"

namespace dtk {

/// What a plan's peaks do not have.
struct DeviceOverhead {
  int64_t bytes = 0;           // that LibTorch's allocator gives out beside the tensors
  std::string not_known = {};  // "scratch of 6 operators", "convolution_workspaces": counted as 0 bytes
};

/// What dit-plan said of a run before it began.
struct StartPlan {
  std::optional<MemoryReport> memory;  // of `host` its highest peak
  std::string problem = {};            // why there is none
  bool machine_too_small = false;      // that is, to make the plan
  std::string refusal = {};  // there is none, as this configuration cannot run: what is wrong, and where
  std::optional<policies::CpuPrecision> precision = {};  // of it, where the run's is not decided yet
  DeviceOverhead beside = {};
  int64_t step_flops = 0;                             // of forward and backward, nothing twice; 0: not known
  std::optional<CheckpointPlacement> placement = {};  // of policies.checkpoint.keep = "auto"

  /// "" where there is a plan.
  const std::string& why_not() const { return refusal.empty() ? problem : refusal; }
  /// Of a plan. `with_host`: host memory is the device's own.
  MemoryNeed need(bool with_host) const;
};
/// Reads what dit-plan --json or start_plan_json() printed. Throws FileError beginning with `name`.
StartPlan read_start_plan(std::string_view json, const std::string& name);

/// "planned peak 33.2 MiB in first_step on cpu; 20.1 GiB available; not known, and counted as 0: scratch of 6
/// operators (dit-plan --device cpu says more)". `available`: bytes that the device can give.
std::string plan_line(const MemoryReport& plan, const DeviceOverhead& beside,
                      std::optional<int64_t> available);

/// How it exceeds `limit` bytes; that the parameters alone do, where they do.
std::string excess_text(const MemoryNeed& need, int64_t limit);
/// In brackets, what an open policies.precision.cpu was taken to be where a need was planned; "" for nothing.
std::string precision_words(std::optional<policies::CpuPrecision> planned);

struct TooLarge {
  int64_t needed = 0, limit = 0;     // bytes, of LibTorch's allocator
  bool budget_is_the_limit = false;  // and what is available would do
  std::string message;
};

/// Why the run cannot fit memory.budget or the device; nothing if it fits.
std::optional<TooLarge> too_large(const MemoryReport& plan, const DeviceOverhead& beside,
                                  const MemoryOptions& options, std::optional<int64_t> available);

/// A table for a terminal of 80 columns: bytes by phase, and below a phase the categories that differ; a
/// device's own statistics know none, so there the plan's stand below the highest phase. Then the host's
/// peak, where the device is not the CPU. What a plan does not know (scratch) counts as 0 there.
std::string planned_against_measured(const MemoryReport& plan, const MemoryReport& measured);

}  // namespace dtk
