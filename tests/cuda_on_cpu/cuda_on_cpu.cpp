// Schedules the fibers.
#undef _FORTIFY_SOURCE  // its longjmp refuses another stack
#include <setjmp.h>
#include <ucontext.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "accesses.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_on_cpu {

Now now;
Counts counted;

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

enum class State { ready, at_barrier, in_warp, gone };

struct Request {
  WarpOperation operation;
  unsigned mask;
  std::uint64_t value;
  int operand;
};

struct Thread {
  std::unique_ptr<Pages> stack = std::make_unique<Pages>(kStackBytes);
  ucontext_t
      context;  // enters the fiber; from then on _setjmp and _longjmp switch, which make no system call
  bool entered = false;
  jmp_buf position;
  State state = State::ready;
  uint3 index;
  Site site;
  Request request;
  std::uint64_t result = 0;
};

struct Machine {
  Schedule schedule;
  std::vector<Thread> threads;
  const std::function<void()>* body = nullptr;
  jmp_buf scheduler;
  std::string failure;
  std::mt19937 random;
};
Machine machine;

std::string place(const Site& site) {
  return std::string(site.file_name()) + ":" + std::to_string(site.line());
}
bool same_place(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}
std::string name_of(std::size_t thread) {
  const uint3 index = machine.threads[thread].index;
  return "thread (" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ") of block (" + std::to_string(blockIdx.x) + "," +
         std::to_string(blockIdx.y) + "," + std::to_string(blockIdx.z) + ")";
}

void wait_as(State state, const Site& site) {
  Thread& self = machine.threads[static_cast<std::size_t>(now.thread)];
  self.state = state;
  self.site = site;
  if (_setjmp(self.position) == 0) _longjmp(machine.scheduler, 1);
}

// A fiber is one thread of every block, and outlives the launch.
void fiber_main() {
  for (;;) {
    (*machine.body)();
    wait_as(State::gone, {});
  }
}

void resume(int index) {
  Thread& thread = machine.threads[static_cast<std::size_t>(index)];
  now.thread = index;
  threadIdx = thread.index;
  if (_setjmp(machine.scheduler) == 0) {
    if (std::exchange(thread.entered, true)) _longjmp(thread.position, 1);
    setcontext(&thread.context);
  }
  now.thread = -1;
  if (!machine.failure.empty()) throw Failure(std::exchange(machine.failure, {}));
}

void prepare(unsigned count) {
  machine.threads.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = machine.threads[i];
    thread.state = State::ready;
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    if (thread.entered) continue;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack->begin();
    thread.context.uc_stack.ss_size = thread.stack->size();
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, fiber_main, 0);
  }
  now.interval = 0;
  now.warp_intervals.assign((count + kWarp - 1) / kWarp, 0);
}

// Whether all threads stood at one barrier, and go on.
bool release_barrier() {
  auto& threads = machine.threads;
  const auto waits = [](const Thread& thread) { return thread.state == State::at_barrier; };
  const auto first = std::find_if(threads.begin(), threads.end(), waits);
  if (first == threads.end()) return false;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (threads[i].state == State::gone)
      throw Failure("barrier at " + place(first->site) + ": gone is " + name_of(i));
    if (!waits(threads[i])) return false;
    if (!same_place(threads[i].site, first->site))
      throw Failure("two barriers, " + place(first->site) + " and " + place(threads[i].site) + ", of " +
                    name_of(i));
  }
  for (Thread& thread : threads) thread.state = State::ready;
  ++now.interval;
  ++counted.barriers;
  return true;
}

// Where a lane reads; itself where the device leaves the value alone.
int source_of(const Request& request, int lane) {
  switch (request.operation) {
    case WarpOperation::sync:
      return lane;
    case WarpOperation::shuffle:
      return request.operand & (kWarp - 1);
    case WarpOperation::shuffle_up:
      return lane - request.operand < 0 ? lane : lane - request.operand;
    case WarpOperation::shuffle_down:
      return lane + request.operand >= kWarp ? lane : lane + request.operand;
    case WarpOperation::shuffle_xor:
      return lane ^ request.operand;
  }
  return lane;
}

// Whether all lanes that the mask of `leader` names stood at its operation, and go on.
bool release_warp(std::size_t warp_index, int leader) {
  Thread* const lanes = &machine.threads[warp_index * kWarp];
  const int present =
      static_cast<int>(std::min<std::size_t>(kWarp, machine.threads.size() - warp_index * kWarp));
  const Request want = lanes[leader].request;
  const std::string where = "warp operation at " + place(lanes[leader].site) + ": ";
  const auto named = [&](int lane) { return (want.mask >> lane & 1U) != 0; };
  for (int lane = 0; lane < kWarp; ++lane) {
    if (!named(lane)) continue;
    if (lane >= present) throw Failure(where + "the block has no lane " + std::to_string(lane));
    const Thread& other = lanes[lane];
    if (other.state == State::gone) throw Failure(where + "gone is lane " + std::to_string(lane));
    if (other.state != State::in_warp || other.request.mask != want.mask ||
        other.request.operation != want.operation || !same_place(other.site, lanes[leader].site))
      return false;
  }
  for (int lane = 0; lane < present; ++lane) {
    if (!named(lane)) continue;
    const int source = source_of(lanes[lane].request, lane);
    if (source < 0 || source >= kWarp || !named(source))
      throw Failure(where + "lane " + std::to_string(lane) + " reads lane " + std::to_string(source) +
                    ", which the mask lacks");
    lanes[lane].result = lanes[source].request.value;
    lanes[lane].state = State::ready;
  }
  // A shuffle orders no memory.
  if (want.operation == WarpOperation::sync && std::popcount(want.mask) == present)
    ++now.warp_intervals[warp_index];
  ++counted.warp_operations;
  return true;
}

[[noreturn]] void throw_stuck() {
  std::map<std::string, int> groups;
  for (const Thread& thread : machine.threads)
    ++groups[thread.state == State::gone         ? "gone"
             : thread.state == State::at_barrier ? "at barrier " + place(thread.site)
                                                 : "in warp operation " + place(thread.site)];
  std::string message = "deadlock in block (" + std::to_string(blockIdx.x) + "):";
  for (const auto& [text, count] : groups) message += " " + std::to_string(count) + " " + text + ";";
  throw Failure(message);
}

template <class Integer>
void arrange(std::vector<Integer>& order, Order how) {
  std::iota(order.begin(), order.end(), 0);
  if (how == Order::descending) std::reverse(order.begin(), order.end());
  if (how == Order::shuffled) std::shuffle(order.begin(), order.end(), machine.random);
}

void run_block() {
  prepare(blockDim.x * blockDim.y * blockDim.z);
  ++now.block;
  ++counted.blocks;
  std::vector<int> order(machine.threads.size());
  for (;;) {
    arrange(order, machine.schedule.threads);
    for (const int index : order)
      if (machine.threads[static_cast<std::size_t>(index)].state == State::ready) resume(index);
    bool released = release_barrier(), waiting = released;
    for (std::size_t i = 0; i < machine.threads.size(); ++i) {
      if (machine.threads[i].state == State::in_warp)
        released |= release_warp(i / kWarp, static_cast<int>(i % kWarp));
      waiting |= machine.threads[i].state != State::gone;
    }
    if (!waiting) return;
    if (!released) throw_stuck();
  }
}

bool is_valid(const cudaLaunchConfig_t& config) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  return threads >= 1 && threads <= 1024 && block.z <= 64 && std::size_t{grid.x} * grid.y * grid.z >= 1 &&
         grid.x <= 0x7fffffffU && grid.y <= 65535 && grid.z <= 65535;
}

}  // namespace

const Counts& counts() {
  return counted;
}

void set_schedule(const Schedule& schedule) {
  machine.schedule = schedule;
}

// The scheduler throws, and drops all fibers.
void fail(const std::string& message) {
  machine.failure = message + ", " + name_of(static_cast<std::size_t>(now.thread));
  _longjmp(machine.scheduler, 1);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const std::function<void()>& body) {
  if (!is_valid(config)) return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > kMaxDynamic) return cudaErrorInvalidValue;
  const dim3 grid = gridDim = config.gridDim;
  blockDim = config.blockDim;
  machine.body = &body;
  now.first_block = now.block + 1;
  machine.random.seed(machine.schedule.seed);
  begin_accesses(config.dynamicSmemBytes);

  // After a failure fibers stand somewhere in the kernel: the next launch makes new ones.
  struct Forget {
    int before = std::uncaught_exceptions();
    ~Forget() {
      if (std::uncaught_exceptions() > before) machine.threads.clear();
    }
  } const forget;
  const std::int64_t count = std::int64_t{grid.x} * grid.y * grid.z, last = machine.schedule.last_blocks;
  std::vector<std::int64_t> order(static_cast<std::size_t>(last > 0 ? std::min(last, count) : count));
  arrange(order, machine.schedule.blocks);
  for (const std::int64_t at : order) {
    const auto index = static_cast<unsigned>(at + count - static_cast<std::int64_t>(order.size()));
    blockIdx = {index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y};
    run_block();
  }
  return cudaSuccess;
}

void barrier(const Site& site) {
  wait_as(State::at_barrier, site);
}

std::uint64_t warp(WarpOperation operation, unsigned mask, std::uint64_t value, int operand,
                   const Site& site) {
  if ((mask >> now.thread % kWarp & 1U) == 0)
    fail("warp operation at " + place(site) + ": the mask lacks the caller");
  Thread& self = machine.threads[static_cast<std::size_t>(now.thread)];
  self.request = {operation, mask, value, operand};
  wait_as(State::in_warp, site);
  return self.result;
}

}  // namespace cuda_on_cpu
