#include <dtk/policies/step_meter.h>

namespace dtk::policies {

StepMeter::StepMeter() : saved_(saved_tensor_ledger()) {
  restart();
}

void StepMeter::restart() {
  cpu_accounts().reset_phases("step");
}

int64_t StepMeter::peak_bytes() const {
  return peak().peak.bytes;
}

PhasePeak StepMeter::peak() const {
  return highest(cpu_accounts().phases());
}

}  // namespace dtk::policies
