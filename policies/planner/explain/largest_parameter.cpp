#include <set>
#include <unordered_set>

#include "explain/snapshot.h"

namespace dtk::planner {
namespace {

using policies::Category;
using policies::MemoryEvent;
using Kind = MemoryEvent::Kind;

// Storages of one size that are temporaries now and become nothing else but saved, while a parameter of that
// size is alive: a model that is built and thrown away before the job's own has none.
class Temporaries {
 public:
  Temporaries(const std::vector<MemoryEvent>& events, const std::vector<std::string>& phases,
              LargestParameter& largest)
      : phases_(phases), largest_(largest) {
    for (const MemoryEvent& event : events) {
      const bool claimed = event.kind == Kind::transfer && event.to.category != Category::temporaries &&
                           event.to.category != Category::saved;
      if (event.kind == Kind::scratch || claimed) others_.insert(event.serial);
    }
    for (const MemoryEvent& event : events) follow(event);
  }

 private:
  void follow(const MemoryEvent& event) {
    if (event.kind == Kind::phase) phase_ = event.serial;
    if (event.kind == Kind::reset) forget();
    if (event.kind == Kind::phase || event.kind == Kind::reset || event.bytes != largest_.bytes) return;
    alive_.erase(event.serial);
    parameters_.erase(event.serial);
    if (event.kind == Kind::death) return;
    if (event.to.category == Category::parameters) parameters_.insert(event.serial);
    if (event.to.category != Category::temporaries || others_.count(event.serial) > 0) return;
    alive_[event.serial] = event.to;
    if (!parameters_.empty() && static_cast<int64_t>(alive_.size()) > largest_.temporaries) note();
  }

  // As the plan forgets its phases.
  void forget() {
    phase_ = 0;
    largest_.temporaries = 0;
    largest_.phase.clear();
    largest_.operators.clear();
  }

  void note() {
    largest_.temporaries = static_cast<int64_t>(alive_.size());
    largest_.phase = phases_.at(phase_);
    std::set<std::string> operators;
    for (const auto& [serial, owner] : alive_) operators.insert(policies::owner_of(owner).label);
    largest_.operators.assign(operators.begin(), operators.end());
  }

  const std::vector<std::string>& phases_;
  LargestParameter& largest_;
  std::unordered_set<uint64_t> others_, parameters_;  // the second: alive
  uint64_t phase_ = 0;
  std::map<uint64_t, policies::OwnerId> alive_;
};

}  // namespace

LargestParameter largest_parameter(const std::vector<MemoryEvent>& events,
                                   const std::vector<std::string>& phases,
                                   const std::map<uint64_t, std::string>& names) {
  std::unordered_set<uint64_t> frozen;  // born as parameters, but without gradient and moments
  for (const MemoryEvent& event : events) {
    if (event.kind == Kind::transfer && event.to.category == Category::frozen) frozen.insert(event.serial);
  }
  LargestParameter largest;
  uint64_t serial = 0;
  for (const MemoryEvent& event : events) {
    const bool booked = event.kind == Kind::birth || event.kind == Kind::transfer;
    if (!booked || event.to.category != Category::parameters || frozen.count(event.serial) > 0) continue;
    const bool renamed = event.serial == serial && largest.bytes > 0;
    if (!renamed && event.bytes <= largest.bytes) continue;
    serial = event.serial;
    largest.bytes = event.bytes;
    largest.name = policies::owner_of(event.to).label;
  }
  if (const auto name = names.find(serial); name != names.end()) largest.name = name->second;
  if (largest.bytes > 0) Temporaries(events, phases, largest);
  return largest;
}

}  // namespace dtk::planner
