// Reads the ledger's event log: what the storages that outlive their operator take, apart from scratch.
//
// Whether a storage was scratch is known when it dies, so peaks without scratch come from a log, not from the
// running books.
#pragma once
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtk::policies {

struct Births {
  int64_t count = 0;
  int64_t bytes = 0;
  friend bool operator==(const Births&, const Births&) = default;
};

/// One phase of a logged job, entered any number of times. Bytes are those of storages born or freed since
/// the log began; what lived before counts as 0.
struct LoggedPhase {
  std::string name;
  MemorySums kept;           // at the last moment before the highest sum without scratch fell
  int64_t scratch = 0;       // most scratch alive at once
  int64_t with_scratch = 0;  // highest sum of both
  std::map<std::string, int64_t> scratch_of;  // most alive at once, by operator
  /// Storages born that were not scratch, by the owner they were born to: category, label.
  std::map<std::pair<Category, std::string>, Births> born;
};

/// `events`: what MemoryAccounts::stop_event_log() returned. What came before the phases were last reset is
/// forgotten, as if it had lived before the log. `names`: phase_names() at the end.
std::vector<LoggedPhase> event_log(const std::vector<MemoryEvent>& events,
                                   const std::vector<std::string>& names);

/// What MemoryAccounts::stop_event_log() returns of a job. What the job throws passes on.
std::vector<MemoryEvent> events_of(MemoryAccounts& accounts, const std::function<void()>& job);

/// What `job` does to `accounts`, by events_of().
std::vector<LoggedPhase> event_log_of(MemoryAccounts& accounts, const std::function<void()>& job);

}  // namespace dtk::policies
