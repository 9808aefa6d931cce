#include "toolkit/plan/calibration.h"

#include <cstdlib>

#include "fuzz/target.h"

namespace dtk::fuzz {
namespace {

void read_calibration(std::string_view input) {
  const Calibration read = parse_calibration(input, "input");
  const std::string written = calibration_json(read);
  if (calibration_json(parse_calibration(written, "written")) != written) std::abort();
}

}  // namespace

const Target calibration = {read_calibration, linear<128, 256>};

}  // namespace dtk::fuzz
