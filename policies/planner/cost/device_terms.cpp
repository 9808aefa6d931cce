#include <dtk/planner/device_terms.h>

namespace dtk::planner {

int64_t bytes_beside(const std::vector<DeviceTerm>& terms) {
  int64_t bytes = 0;
  for (const DeviceTerm& term : terms) bytes += term.on_host || term.booked ? 0 : term.bytes;
  return bytes;
}

int64_t allocated_beside(const std::vector<DeviceTerm>& terms) {
  int64_t bytes = bytes_beside(terms);
  for (const DeviceTerm& term : terms)
    bytes -= term.allocated || term.on_host || term.booked ? 0 : term.bytes;
  return bytes;
}

}  // namespace dtk::planner
