#include "core/stream_order.h"

#include <dtk/planner/plan_error.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace dtk::planner {
namespace {

thread_local int64_t waits_of_thread = 0;
std::atomic<int64_t> waits_of_all{0};

std::string stream_name(c10::StreamId stream) {
  return stream == StreamOrder::kHost ? "the host" : "stream " + std::to_string(stream);
}

[[noreturn]] void refuse_use(const char* what, c10::StreamId stream, const char* does, int64_t bytes,
                             const char* done, c10::StreamId other) {
  throw PlanError(operator_here(what) + ": " + stream_name(stream) + " " + does + " " +
                  std::to_string(bytes) + " bytes that " + stream_name(other) + " " + done +
                  ", without waiting for that; record an event on " + stream_name(other) +
                  " behind it and let " + stream_name(stream) +
                  " wait for the event before (c10::Event::record, then " +
                  (stream == StreamOrder::kHost ? "synchronize" : "block") + ")");
}

void raise(StreamOrder::Clock& clock, const StreamOrder::Clock& by) {
  if (clock.size() < by.size()) clock.resize(by.size());
  for (size_t i = 0; i < by.size(); ++i) clock[i] = std::max(clock[i], by[i]);
}

}  // namespace

StreamOrder& StreamOrder::instance() {
  static auto* const order = new StreamOrder;
  return *order;
}

StreamOrder::Clock& StreamOrder::clock(c10::StreamId stream) {
  const auto index = static_cast<size_t>(stream + 1);
  if (clocks_.size() <= index) clocks_.resize(index + 1);
  Clock& clock = clocks_[index];
  if (clock.size() <= index) clock.resize(index + 1);
  return clock;
}

// What the host has waited for is done before all work that it gives out later.
uint64_t StreamOrder::known(c10::StreamId of, c10::StreamId by) {
  const auto index = static_cast<size_t>(of + 1);
  const Clock& own = clock(by);
  uint64_t time = index < own.size() ? own[index] : 0;
  const Clock& host = clock(kHost);
  if (index < host.size()) time = std::max(time, host[index]);
  return time;
}

WorkMark StreamOrder::next(c10::StreamId stream) {
  return {stream, ++clock(stream)[static_cast<size_t>(stream + 1)]};
}

WorkMark StreamOrder::born(c10::StreamId stream) {
  const std::lock_guard lock(mutex_);
  return next(stream);
}

void StreamOrder::freed(const MemoryUse& memory) {
  const std::lock_guard lock(mutex_);
  const auto check = [&](const WorkMark& mark, const char* does) {
    if (mark.stream == memory.stream || known(mark.stream, memory.stream) >= mark.time) return;
    freed_early_ = std::to_string(memory.bytes) + " bytes of " + stream_name(memory.stream) +
                   " were freed while " + stream_name(mark.stream) + " " + does +
                   " them, so other work may have them by then; record an event on " +
                   stream_name(mark.stream) + " behind it and let " + stream_name(memory.stream) +
                   " wait for the event before they are freed (c10::Event::record, then block)";
  };
  check(memory.written, "writes");
  for (const WorkMark& mark : memory.read) check(mark, "reads");
}

void StreamOrder::refuse_early_freeing() {
  if (!freed_early_.empty()) throw PlanError(std::exchange(freed_early_, {}));
}

void StreamOrder::reads(MemoryUse& memory, c10::StreamId stream, const char* what) {
  const std::lock_guard lock(mutex_);
  refuse_early_freeing();
  const WorkMark written = memory.written;
  if (written.stream != stream && known(written.stream, stream) < written.time)
    refuse_use(what, stream, "reads", memory.bytes, "wrote", written.stream);
  const WorkMark now = next(stream);
  for (WorkMark& mark : memory.read) {
    if (mark.stream != stream) continue;
    mark.time = now.time;
    return;
  }
  memory.read.push_back(now);
}

void StreamOrder::writes(MemoryUse& memory, c10::StreamId stream, const char* what) {
  const std::lock_guard lock(mutex_);
  refuse_early_freeing();
  const WorkMark written = memory.written;
  if (written.stream != stream && known(written.stream, stream) < written.time)
    refuse_use(what, stream, "writes", memory.bytes, "wrote", written.stream);
  for (const WorkMark& mark : memory.read) {
    if (mark.stream != stream && known(mark.stream, stream) < mark.time)
      refuse_use(what, stream, "writes", memory.bytes, "reads", mark.stream);
  }
  memory.read.clear();
  memory.written = next(stream);
}

void StreamOrder::writes_host(const void* begin, int64_t bytes, c10::StreamId stream) {
  const std::lock_guard lock(mutex_);
  const char* const first = static_cast<const char*>(begin);
  copies_[first] = {first + bytes, next(stream)};
  in_flight_ = true;
}

void StreamOrder::host_uses(const void* begin, int64_t bytes, const char* what) {
  const std::lock_guard lock(mutex_);
  const char* const first = static_cast<const char*>(begin);
  for (const auto& [start, copy] : copies_) {
    if (start < first + bytes && first < copy.end && known(copy.mark.stream, kHost) < copy.mark.time)
      refuse_use(what, kHost, "uses", bytes, "writes", copy.mark.stream);
  }
}

void StreamOrder::host_freed(const void* begin, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const char* const first = static_cast<const char*>(begin);
  copies_.erase(copies_.lower_bound(first), copies_.lower_bound(first + bytes));
  in_flight_ = !copies_.empty();
}

StreamOrder::Clock StreamOrder::record(c10::StreamId stream) {
  const std::lock_guard lock(mutex_);
  Clock event = clock(stream);
  raise(event, clock(kHost));
  return event;
}

void StreamOrder::wait(c10::StreamId stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  raise(clock(stream), event);
  if (stream != kHost) return;
  ++waits_of_thread;
  ++waits_of_all;
  forget_arrived();
}

int64_t StreamOrder::host_waits() {
  return waits_of_thread;
}

int64_t StreamOrder::host_waits_of_all() {
  return waits_of_all;
}

void StreamOrder::synchronize(c10::StreamId stream) {
  wait(kHost, record(stream));
}

void StreamOrder::synchronize_all() {
  size_t streams = 0;
  {
    const std::lock_guard lock(mutex_);
    streams = clocks_.size();
  }
  for (size_t i = 0; i < streams; ++i) synchronize(static_cast<c10::StreamId>(i) - 1);
}

void StreamOrder::forget_arrived() {
  for (auto it = copies_.begin(); it != copies_.end();) {
    const WorkMark mark = it->second.mark;
    it = known(mark.stream, kHost) >= mark.time ? copies_.erase(it) : std::next(it);
  }
  in_flight_ = !copies_.empty();
}

}  // namespace dtk::planner
