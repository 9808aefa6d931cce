#include <dtk/policies/phase_meter.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace dtk::policies {
namespace {

std::vector<PhaseMeter*>& meters() {
  static auto* list = new std::vector<PhaseMeter*>;
  return *list;
}

struct Phase {
  std::mutex mutex;
  std::string name = "build";
  bool named = false;
};

Phase& phase() {
  static auto* one = new Phase;
  return *one;
}

std::string enter(const std::string& name) {
  for (PhaseMeter* meter : meters()) meter->enter_phase(name);
  const std::lock_guard lock(phase().mutex);
  phase().named = true;
  return std::exchange(phase().name, name);
}

}  // namespace

std::string current_phase() {
  const std::lock_guard lock(phase().mutex);
  return phase().name;
}

std::string in_phase_text(const std::string& name) {
  const std::lock_guard lock(phase().mutex);
  return phase().named ? " in phase " + name : "";
}

void name_phases() {
  const std::lock_guard lock(phase().mutex);
  phase().named = true;
}

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
