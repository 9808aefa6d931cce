#include "toolkit/programs/fork_workers.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include "support/catch.h"
#include "support/runs/tiny_run.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/plan_record.h"
#include "toolkit/plan/plan_text.h"

using namespace dtk;

namespace {

bool has_several_processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1;
}

}  // namespace

// First: the tests below start threads of LibTorch's, which stay.
TEST_CASE("pieces of work come back in order, from other processes") {
  if (!has_several_processors()) {
    WARN("one processor: every piece is the caller's");
    return;
  }
  const std::string large(300'000, 'x');  // more than a pipe holds
  // Who has the first piece waits for another process to begin the second: one alone would never end.
  std::array<int, 2> second_begun;
  REQUIRE(pipe(second_begun.data()) == 0);
  const auto results = side_by_side(7, [&](size_t i) {
    pollfd begun = {second_begun[0], POLLIN, 0};
    constexpr int milliseconds = 60'000;
    if (i == 0 && poll(&begun, 1, milliseconds) != 1) throw std::runtime_error("nobody has begun the second");
    if (i == 1 && write(second_begun[1], "x", 1) != 1) throw std::runtime_error("write");
    return std::to_string(getpid()) + " " + std::to_string(i) + large;
  });
  for (const int end : second_begun) close(end);
  REQUIRE(results.size() == 7);
  std::set<std::string> processes;
  for (size_t i = 0; i < results.size(); ++i) {
    REQUIRE(results[i]);
    const size_t space = results[i]->find(' ');
    CHECK(results[i]->substr(space) == " " + std::to_string(i) + large);
    processes.insert(results[i]->substr(0, space));
  }
  CHECK(processes.size() > 1);
  CHECK(processes.count(std::to_string(getpid())) == 0);
}

// The process that was started first holds its first piece back until the other has delivered more than a
// pipe holds and begun the last.
TEST_CASE("no process waits until another's results were read") {
  if (!has_several_processors()) return;
  struct Shared {
    std::atomic<pid_t> first[2];  // who has pieces 0 and 1
    std::atomic<bool> last_begun;
  };
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  Shared& shared = *new (memory) Shared{};
  const auto wait_for = [](const auto& value) {
    for (int left = 60'000; left > 0 && !value; --left) usleep(1000);
    if (!value) throw std::runtime_error("waited for a minute");
  };
  constexpr size_t pieces = 6;
  const std::string large(300'000, 'x');
  const auto results = side_by_side(pieces, [&](size_t i) {
    if (i == pieces - 1) shared.last_begun = true;
    if (i < 2) {
      shared.first[i] = getpid();
      wait_for(shared.first[1 - i]);
      if (getpid() < shared.first[1 - i]) wait_for(shared.last_begun);
    }
    return large;
  });
  munmap(memory, sizeof(Shared));
  for (const auto& result : results) CHECK((result == large));  // too long to be shown
}

TEST_CASE("what a copy did not deliver is left to the caller") {
  if (!has_several_processors()) return;
  const auto thrown = side_by_side(5, [](size_t i) -> std::string {
    if (i == 2) throw std::runtime_error("refused");
    return "done";
  });
  for (size_t i = 0; i < thrown.size(); ++i) CHECK(thrown[i].has_value() == (i != 2));

  const auto ended = side_by_side(2, [](size_t i) -> std::string {
    if (i == 1) _exit(1);
    return "done";
  });
  CHECK(ended[0] == "done");
  CHECK_FALSE(ended[1]);
}

TEST_CASE("beside another thread every piece of work is left to the caller") {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread other([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over; });
  });
  const auto results = side_by_side(3, [](size_t) { return std::string("done"); });
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_one();
  other.join();
  for (const auto& result : results) CHECK_FALSE(result);
}

TEST_CASE("a plan survives its record") {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  for (const c10::Device device : {c10::Device("cuda:0"), c10::Device("cpu")}) {
    const Plan plan = make_plan(loaded, device);
    const Plan read = read_plan_record(plan_record(plan), plan.loaded);
    CHECK(plan_json(read) == plan_json(plan));
    CHECK(plan_text("name", read) == plan_text("name", plan));
    REQUIRE(read.policies.size() == plan.policies.size());
    for (size_t i = 0; i < plan.policies.size(); ++i) {
      CHECK(read.policies[i].policy == plan.policies[i].policy);
      CHECK(read.policies[i].reason == plan.policies[i].reason);
      CHECK(read.policies[i].saved_bytes == plan.policies[i].saved_bytes);
    }
    CHECK(read.step == plan.step);
    CHECK(read.bytes_in(Capacity::allocator) == plan.bytes_in(Capacity::allocator));
    CHECK(read.bytes_in(Capacity::device) == plan.bytes_in(Capacity::device));
  }
}
