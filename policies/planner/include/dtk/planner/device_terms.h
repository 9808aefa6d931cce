// What a CUDA device takes besides the storages that a plan counts to the byte.
//
// These are terms of their own, beside the exact figures and never within them, each with its formula and
// where that comes from. None has been measured on a device yet.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk::planner {

/// Each switch leaves out the term of its name.
struct DeviceTermOptions {
  bool rounding = true;
  bool attention_scratch = true;  // the only one that is booked, as category scratch: it comes and goes
  bool workspaces = true;
  bool context = true;
  bool pinned = true;
  /// Of the device to plan for, major * 10 + minor: 90 is Hopper's. Decides on the workspaces.
  int compute_capability = 90;
};

struct DeviceTerm {
  std::string name;      // of its switch
  int64_t bytes = 0;     // at the most
  bool on_host = false;  // else on the device
  bool booked = false;   // is in the plan's peaks already, as category scratch
  std::string formula;
  std::string source;
  std::string measured = "never";
};

/// Bytes of the device that its peak does not have yet: of all terms but those on the host and the booked
/// one.
int64_t bytes_beside(const std::vector<DeviceTerm>& terms);

}  // namespace dtk::planner
