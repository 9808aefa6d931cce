// The order of work on the simulated device's streams: one piece of work may use memory that another stream
// wrote, or write what another reads, only after its stream waited for an event recorded behind that work.
//
// The rule is CUDA's, which computes wrong values where it is broken and says nothing. Here breaking it
// throws.
#pragma once
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace dtk::planner {

/// Work number `time` of a stream, counted from 1.
struct WorkMark {
  c10::StreamId stream = 0;
  uint64_t time = 0;
};

/// What one storage of the device needs to know: who wrote it last, and who has read it since.
struct MemoryUse {
  int64_t bytes = 0;
  c10::StreamId stream = 0;  // that it was given to: its next owner's work may begin there at once
  WorkMark written;
  c10::SmallVector<WorkMark, 1> read;  // one a stream
};

/// For each stream the work that is known to be done before its next: its own, and what it waited for.
/// Thread-safe; the host is one more stream, whose threads wait for each other by other means.
class StreamOrder {
 public:
  static constexpr c10::StreamId kHost = -1;
  using Clock = std::vector<uint64_t>;  // by stream + 1

  /// The process's one. Never destroyed.
  static StreamOrder& instance();

  /// Memory is given to `stream`, for a piece of work that writes it.
  WorkMark born(c10::StreamId stream);
  /// Work on `stream`. Throws PlanError, naming `what`, where it was not waited for what it needs.
  void reads(MemoryUse& memory, c10::StreamId stream, const char* what);
  void writes(MemoryUse& memory, c10::StreamId stream, const char* what);
  /// The memory is given back, and may be given out again to its stream. Where work of another stream that
  /// uses it was not waited for there, the next reads() or writes() throws PlanError: freeing must not.
  void freed(const MemoryUse& memory);
  /// A copy on `stream` that writes to host memory and is not waited for.
  void writes_host(const void* begin, int64_t bytes, c10::StreamId stream);
  /// The host reads or writes its own memory. Throws PlanError if a copy into it was not waited for.
  void host_uses(const void* begin, int64_t bytes, const char* what);
  bool copies_in_flight() const { return in_flight_; }
  /// The memory is given back to an allocator that waits for the copies into it before it gives it out again.
  void host_freed(const void* begin, int64_t bytes);

  /// An event: all work given to `stream` so far, and what that waited for.
  Clock record(c10::StreamId stream);
  void wait(c10::StreamId stream, const Clock& event);
  /// The host waits for all work of a stream; for that of all streams.
  void synchronize(c10::StreamId stream);
  void synchronize_all();
  /// How often this thread, or any, has waited for the device so far: for an event, a stream, or a copy that
  /// does not go on beside it.
  static int64_t host_waits();
  static int64_t host_waits_of_all();

 private:
  struct Copy {
    const char* end;
    WorkMark mark;
  };
  uint64_t known(c10::StreamId of, c10::StreamId by);
  Clock& clock(c10::StreamId stream);
  WorkMark next(c10::StreamId stream);
  void forget_arrived();
  void refuse_early_freeing();

  std::mutex mutex_;  // guards everything below
  std::vector<Clock> clocks_;
  std::map<const char*, Copy> copies_;  // into host memory, by its address
  std::string freed_early_;             // what is still to be said; "": nothing
  std::atomic<bool> in_flight_{false};
};

}  // namespace dtk::planner
