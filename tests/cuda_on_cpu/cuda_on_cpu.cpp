// Schedules the fibers and checks their accesses. Compiled without -fsanitize=thread: it has the functions
// that the compiler calls in files compiled with it.
#undef _FORTIFY_SOURCE  // its longjmp refuses another stack
#include "cuda_on_cpu.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

constexpr std::size_t kMaxDynamic = 48 * 1024;  // what a launch gets without asking, on any device
thread_local float4 dynamic_shared[kMaxDynamic / sizeof(float4)];

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024, kGuardBytes = 4096;
constexpr std::size_t kGranule = 2;  // bytes that have one record: the smallest type that kernels write
constexpr int kWarp = 32;

// Pages of zeros that take memory when they are touched.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    begin_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin_ == MAP_FAILED) throw std::bad_alloc();
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(begin_, bytes_); }
  std::byte* begin() const { return static_cast<std::byte*>(begin_); }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* begin_;
};

// An access. What comes after it: the same thread, a later barrier interval of its block, a later __syncwarp
// interval of its warp, a later launch. All else is concurrent. All zero: never.
struct Stamp {
  std::uint32_t block;  // counted over all launches, from 1
  std::uint16_t interval, warp_interval, thread;
  bool atomic;
};
struct Record {
  Stamp write, read[2];  // of two threads: whoever writes conflicts with one of them
};

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

struct Region {
  std::string name;
  std::uintptr_t begin, end, guard;
  bool written, shared;
  Pages records;
  std::unique_ptr<Pages> storage;

  Region(std::string its_name, std::uintptr_t at, std::size_t bytes)
      : name(std::move(its_name)),
        begin(at),
        end(at + bytes),
        guard(0),
        written(false),
        shared(true),
        records((bytes / kGranule + 1) * sizeof(Record)) {}
  Record& record(std::size_t granule) const { return reinterpret_cast<Record*>(records.begin())[granule]; }
};

namespace {

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
  Counts counts;
  std::map<std::uintptr_t, std::unique_ptr<Region>> buffers;  // by the end of the room behind them
  std::unique_ptr<Region> static_shared, dynamic_shared;
  std::vector<Thread> threads;
  std::vector<std::uint16_t> warp_intervals;
  std::uint16_t interval = 0;
  std::uint32_t block = 0, first_block = 1;  // of this launch
  const std::function<void()>* body = nullptr;
  jmp_buf scheduler;
  int running = -1;  // a thread, or -1 outside of kernels
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

// A fiber can not throw into the launch: the scheduler does it, and drops all fibers.
[[noreturn]] void fail(const std::string& message) {
  machine.failure = message + ", " + name_of(static_cast<std::size_t>(machine.running));
  _longjmp(machine.scheduler, 1);
}

void wait_as(State state, const Site& site) {
  Thread& self = machine.threads[static_cast<std::size_t>(machine.running)];
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
  machine.running = index;
  threadIdx = thread.index;
  if (_setjmp(machine.scheduler) == 0) {
    if (std::exchange(thread.entered, true)) _longjmp(thread.position, 1);
    setcontext(&thread.context);
  }
  machine.running = -1;
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
  machine.interval = 0;
  machine.warp_intervals.assign((count + kWarp - 1) / kWarp, 0);
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
  ++machine.interval;
  ++machine.counts.barriers;
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
    ++machine.warp_intervals[warp_index];
  ++machine.counts.warp_operations;
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
  ++machine.block;
  ++machine.counts.blocks;
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

// Static __shared__ arrays are thread-local data of the program, which is the first entry.
std::unique_ptr<Region> make_static_shared() {
  std::span<const std::byte> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS)
            *static_cast<std::span<const std::byte>*>(data) = {
                static_cast<const std::byte*>(info->dlpi_tls_data), info->dlpi_phdr[i].p_memsz};
        return 1;
      },
      &found);
  return std::make_unique<Region>("static shared memory", address_of(found.data()), found.size());
}

bool is_in(std::uintptr_t at, std::uintptr_t begin, std::uintptr_t end) {
  return begin <= at && at < end;
}

// Whose the address is, room around it included; null: a stack, a constant.
Region* find_region(std::uintptr_t at) {
  const std::uintptr_t dynamic = address_of(dynamic_shared);
  if (is_in(at, dynamic, dynamic + sizeof dynamic_shared)) return machine.dynamic_shared.get();
  if (is_in(at, machine.static_shared->begin, machine.static_shared->end)) return machine.static_shared.get();
  const auto found = machine.buffers.upper_bound(at);
  if (found == machine.buffers.end() || at < found->second->begin - found->second->guard) return nullptr;
  return found->second.get();
}

bool concurrent(const Stamp& before, const Stamp& now, bool shared) {
  if (before.block < machine.first_block || (before.atomic && now.atomic)) return false;
  if (before.block != now.block) return !shared;
  if (before.thread == now.thread || before.interval != now.interval) return false;
  return before.thread / kWarp != now.thread / kWarp || before.warp_interval == now.warp_interval;
}

// By which addr2line finds the line.
std::string code_address(const void* code) {
  Dl_info info{};
  if (code == nullptr || dladdr(code, &info) == 0) return "";
  char text[64];
  std::snprintf(text, sizeof text, ", code 0x%zx",
                static_cast<std::size_t>(address_of(code) - address_of(info.dli_fbase) - 1));
  return text;
}

enum class Kind { read, write, atomic };

void access(const void* address, std::size_t bytes, Kind kind, bool aligned, const void* code) {
  if (machine.running < 0) return;
  ++machine.counts.accesses;
  const std::uintptr_t at = address_of(address);
  const Region* const region = find_region(at);
  if (region == nullptr) return;
  const auto fail_by = [&](const std::string& what) {
    fail(what + ": " + (kind == Kind::read ? "read of " : "write of ") + std::to_string(bytes) +
         " bytes at byte " + std::to_string(static_cast<std::ptrdiff_t>(at - region->begin)) + " of " +
         region->name + " (" + std::to_string(region->end - region->begin) + " bytes)" + code_address(code));
  };
  if (at < region->begin || at + bytes > region->end) fail_by("out of bounds");
  if (aligned && at % bytes != 0) fail_by("misaligned");
  const Stamp now{machine.block, machine.interval,
                  machine.warp_intervals[static_cast<std::size_t>(machine.running / kWarp)],
                  static_cast<std::uint16_t>(machine.running), kind == Kind::atomic};
  const std::size_t last = (at + bytes - 1 - region->begin) / kGranule;
  for (std::size_t i = (at - region->begin) / kGranule; i <= last; ++i) {
    Record& record = region->record(i);
    const std::uint32_t writer = record.write.block;
    const bool written = region->shared ? writer == now.block : region->written || writer != 0;
    if (kind != Kind::write && !written) fail_by("unwritten memory");
    const auto conflicts = [&](const Stamp& before) {
      if (concurrent(before, now, region->shared))
        fail_by("data race with thread " + std::to_string(before.thread) +
                (before.block == now.block ? " of the same block" : " of another block"));
    };
    conflicts(record.write);
    if (kind != Kind::read) {
      conflicts(record.read[0]);
      conflicts(record.read[1]);
      record.write = now;
    } else {
      const Stamp& newest = record.read[0];
      if (newest.thread != now.thread || newest.block != now.block) record.read[1] = newest;
      record.read[0] = now;
    }
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
  return machine.counts;
}

void set_schedule(const Schedule& schedule) {
  machine.schedule = schedule;
}

Region* make_region(std::string name, std::size_t bytes, bool written) {
  auto storage = std::make_unique<Pages>(bytes + 2 * kGuardBytes);
  auto region = std::make_unique<Region>(std::move(name), address_of(storage->begin() + kGuardBytes), bytes);
  region->guard = kGuardBytes;
  region->written = written;
  region->shared = false;
  region->storage = std::move(storage);
  const std::uintptr_t key = region->end + kGuardBytes;
  return (machine.buffers[key] = std::move(region)).get();
}

void* begin_of(const Region* region) {
  return region->storage->begin() + kGuardBytes;
}

void remove_region(Region* region) {
  machine.buffers.erase(region->end + region->guard);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const std::function<void()>& body) {
  if (!is_valid(config)) return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > kMaxDynamic) return cudaErrorInvalidValue;
  const dim3 grid = gridDim = config.gridDim;
  blockDim = config.blockDim;
  machine.body = &body;
  machine.first_block = machine.block + 1;
  machine.random.seed(machine.schedule.seed);
  if (!machine.static_shared) machine.static_shared = make_static_shared();
  machine.dynamic_shared =
      std::make_unique<Region>("dynamic shared memory", address_of(dynamic_shared), config.dynamicSmemBytes);

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
  if ((mask >> machine.running % kWarp & 1U) == 0)
    fail("warp operation at " + place(site) + ": the mask lacks the caller");
  Thread& self = machine.threads[static_cast<std::size_t>(machine.running)];
  self.request = {operation, mask, value, operand};
  wait_as(State::in_warp, site);
  return self.result;
}

void atomic_access(void* address, std::size_t bytes) {
  access(address, bytes, Kind::atomic, true, nullptr);
}

}  // namespace cuda_on_cpu

// What files compiled with -fsanitize=thread call.
extern "C" {
#define DTK_ACCESS(name, bytes, kind, aligned)                                                          \
  void __tsan_##name(void* address) {                                                                   \
    cuda_on_cpu::access(address, bytes, cuda_on_cpu::Kind::kind, aligned, __builtin_return_address(0)); \
  }
#define DTK_ACCESSES(bytes)                             \
  DTK_ACCESS(read##bytes, bytes, read, true)            \
  DTK_ACCESS(write##bytes, bytes, write, true)          \
  DTK_ACCESS(unaligned_read##bytes, bytes, read, false) \
  DTK_ACCESS(unaligned_write##bytes, bytes, write, false)
DTK_ACCESSES(1)
DTK_ACCESSES(2)
DTK_ACCESSES(4)
DTK_ACCESSES(8)
DTK_ACCESSES(16)
void __tsan_read_range(void* address, std::size_t bytes) {
  cuda_on_cpu::access(address, bytes, cuda_on_cpu::Kind::read, false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  cuda_on_cpu::access(address, bytes, cuda_on_cpu::Kind::write, false, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
}
