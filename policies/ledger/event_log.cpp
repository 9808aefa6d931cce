#include <dtk/policies/internal/event_log.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace dtk::policies {
namespace {

using Kind = MemoryEvent::Kind;

class Replay {
 public:
  explicit Replay(const std::vector<MemoryEvent>& events) {
    for (const MemoryEvent& event : events) {
      const bool born_scratch = event.kind == Kind::birth && event.to.category == Category::scratch;
      if (event.kind == Kind::scratch || born_scratch) scratch_blocks_.insert(event.serial);
    }
  }

  void follow(const MemoryEvent& event) {
    if (event.kind == Kind::reset) {
      begin_anew();
    } else if (event.kind == Kind::phase) {
      keep_peak();
      enter(event.serial);
    } else if (scratch_blocks_.count(event.serial) > 0) {
      follow_scratch(event);
    } else {
      follow_kept(event);
    }
  }

  std::vector<LoggedPhase> result(const std::vector<std::string>& names) {
    keep_peak();
    std::vector<LoggedPhase> phases;
    for (auto& [index, phase] : phases_) {
      phase.result.name = names.at(index);
      phases.push_back(std::move(phase.result));
    }
    return phases;
  }

 private:
  struct Phase {
    LoggedPhase result;
    std::optional<int64_t> highest;
  };

  void begin_anew() {
    phases_.clear();
    phase_ = 0;
    live_ = {};
    scratch_ = 0;
    scratch_of_.clear();
    at_peak_ = false;
  }

  void follow_scratch(const MemoryEvent& event) {
    if (event.kind != Kind::birth && event.kind != Kind::death) return;
    const int64_t bytes = event.kind == Kind::birth ? event.bytes : -event.bytes;
    const std::string label = owner_of(event.to).label;
    scratch_ += bytes;
    int64_t& alive = scratch_of_[label];
    alive += bytes;
    int64_t& most = phases_[phase_].result.scratch_of[label];
    most = std::max(most, alive);
    look();
  }

  void follow_kept(const MemoryEvent& event) {
    if (event.kind == Kind::birth) {
      live_.add(event.to, event.bytes);
      const Owner owner = owner_of(event.to);
      Births& born = phases_[phase_].result.born[{owner.category, owner.label}];
      ++born.count;
      born.bytes += event.bytes;
    } else if (event.kind == Kind::death) {
      keep_peak();
      live_.add(event.from, -event.bytes);
    } else {
      live_.add(event.from, -event.bytes);
      live_.add(event.to, event.bytes);
    }
    look();
  }

  void enter(uint64_t phase) {
    at_peak_ = false;
    phase_ = phase;
    look();
  }

  void look() {
    Phase& phase = phases_[phase_];
    phase.result.scratch = std::max(phase.result.scratch, scratch_);
    phase.result.with_scratch = std::max(phase.result.with_scratch, live_.bytes + scratch_);
    if (phase.highest && live_.bytes <= *phase.highest) return;
    phase.highest = live_.bytes;
    at_peak_ = true;
  }

  // Called before the sum falls: a peak's sums are those after all that changed hands at the top.
  void keep_peak() {
    if (at_peak_) phases_[phase_].result.kept = live_;
    at_peak_ = false;
  }

  std::unordered_set<uint64_t> scratch_blocks_;
  std::map<uint64_t, Phase> phases_;
  uint64_t phase_ = 0;
  MemorySums live_;
  int64_t scratch_ = 0;
  std::map<std::string, int64_t> scratch_of_;
  bool at_peak_ = false;  // live_ is the highest of the phase, and not kept yet
};

}  // namespace

std::vector<LoggedPhase> event_log(const std::vector<MemoryEvent>& events,
                                   const std::vector<std::string>& names) {
  Replay replay(events);
  for (const MemoryEvent& event : events) replay.follow(event);
  return replay.result(names);
}

std::vector<MemoryEvent> events_of(MemoryAccounts& accounts, const std::function<void()>& job) {
  accounts.start_event_log();
  try {
    job();
  } catch (...) {
    accounts.stop_event_log();
    throw;
  }
  return accounts.stop_event_log();
}

std::vector<LoggedPhase> event_log_of(MemoryAccounts& accounts, const std::function<void()>& job) {
  const std::vector<MemoryEvent> events = events_of(accounts, job);
  return event_log(events, accounts.phase_names());
}

}  // namespace dtk::policies
