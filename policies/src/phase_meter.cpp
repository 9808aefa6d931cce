#include <dtk/policies/phase_meter.h>

#include <algorithm>
#include <utility>

namespace dtk::policies {
namespace {

std::vector<PhaseMeter*>& meters() {
  static auto* list = new std::vector<PhaseMeter*>;
  return *list;
}

std::string& current_phase() {
  static auto* name = new std::string("build");
  return *name;
}

std::string enter(const std::string& name) {
  for (PhaseMeter* meter : meters()) meter->enter_phase(name);
  return std::exchange(current_phase(), name);
}

}  // namespace

PhaseMeterRegistration::PhaseMeterRegistration(PhaseMeter& meter) : meter_(meter) {
  meter.enter_phase(current_phase());
  meters().push_back(&meter);
}

PhaseMeterRegistration::~PhaseMeterRegistration() {
  auto& list = meters();
  list.erase(std::find(list.begin(), list.end(), &meter_));
}

PhaseScope::PhaseScope(std::string_view name) : previous_(enter(std::string(name))) {}
PhaseScope::~PhaseScope() {
  enter(previous_);
}

}  // namespace dtk::policies
