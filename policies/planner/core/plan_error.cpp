#include <ATen/core/grad_mode.h>
#include <dtk/planner/plan_error.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/phase_meter.h>

namespace dtk::planner {

std::string operator_here(const std::string& operator_name) {
  const std::string& path = policies::module_path();
  const policies::BackwardPlace backward = policies::backward_place();
  // Forward code that runs in backward needs a graph; backward's own code makes none.
  const bool forward_code = !backward.active || at::GradMode::is_enabled();
  if (forward_code && !path.empty())
    return operator_name + " in " + path + (backward.active ? ", recomputed in backward" : "");
  if (!backward.path.empty()) return operator_name + " in the backward of " + backward.path;
  const std::string phase = policies::in_phase_text(policies::current_phase());
  return operator_name + " outside of all modules" + (phase.empty() ? "" : "," + phase);
}

void refuse_reading(const std::string& operator_name) {
  const bool item = operator_name == "aten::_local_scalar_dense";
  throw PlanError(operator_here(item ? "aten::item()" : operator_name) +
                  " reads a value, and a plan has none: what the job does next cannot be known; read what "
                  "steers the job between steps with policies::values_sync()");
}

}  // namespace dtk::planner
