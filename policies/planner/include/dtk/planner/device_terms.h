// What a CUDA device takes besides the storages that a plan counts to the byte.
//
// These are terms of their own, beside the exact figures and never within them, each with its formula and
// where that comes from. measure_device_terms() measures them on a device.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk::planner {

/// What CUDA's caching allocator holds of the device, in segments that it takes at once and, while there is
/// room, keeps: storages, workspaces, and what lies free between them.
struct Reserved {
  int64_t bytes = 0;
  int64_t small_bytes = 0;  // of them, those of segments for storages of up to 1 MiB
  int64_t segments = 0;
  friend bool operator==(const Reserved&, const Reserved&) = default;
};

/// What a device says of a term.
struct MeasuredTerm {
  std::string name;        // of the term
  std::string what;        // "a storage of 1 byte"
  int64_t bytes = 0;       // that it took
  int64_t by_formula = 0;  // that it should take
  friend bool operator==(const MeasuredTerm&, const MeasuredTerm&) = default;
};

/// Each switch leaves out the term of its name.
struct DeviceTermOptions {
  bool rounding = true;
  bool attention_scratch = true;  // booked, as category scratch: it comes and goes
  bool reduction_scratch = true;  // likewise
  bool workspaces = true;
  bool convolution_workspaces = true;
  bool kernel_scratch = true;
  bool context = true;
  bool pinned = true;
  /// Of the device to plan for, major * 10 + minor: 90 is Hopper's. Decides on the workspaces.
  int compute_capability = 90;
  /// Of that device; they decide on reduction_scratch. 132 and 2048 are those of an H100 SXM and an H200.
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
  /// On a device like the one to plan for. The context is then what was measured, not the estimate.
  std::vector<MeasuredTerm> measured = {};
  std::string measured_on = "";  // "NVIDIA H200, 2026-11-22"
};

struct DeviceTerm {
  std::string name;       // of its switch
  int64_t bytes = 0;      // at the most
  bool on_host = false;   // else on the device
  bool booked = false;    // is in the plan's peaks already, as category scratch
  bool allocated = true;  // by LibTorch's allocator
  bool known = true;      // else counted as 0 bytes
  std::string formula;
  std::string source;
  std::optional<std::string> measured = {};  // nothing: never
};

/// Bytes of the device that its peak does not have yet: of all terms but those on the host and the booked
/// ones.
int64_t bytes_beside(const std::vector<DeviceTerm>& terms);
/// Those of them that LibTorch's allocator hands out, and a limit set for it counts: not the context.
int64_t allocated_beside(const std::vector<DeviceTerm>& terms);

/// Every term on `device`, a real CUDA device that this process has not used yet (the workspaces are taken
/// with the first product, the context before it) and in which no plan was made. What other processes hold on
/// the device counts as context. `numbers`: compute capability and multiprocessors of that device. Waits for
/// the device. Throws std::invalid_argument for another device, c10::Error where the device fails.
std::vector<MeasuredTerm> measure_device_terms(c10::Device device, const DeviceTermOptions& numbers);

}  // namespace dtk::planner
