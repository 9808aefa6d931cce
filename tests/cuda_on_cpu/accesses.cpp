// Checks the accesses of fibers. Compiled without -fsanitize=thread: it has the functions that the compiler
// calls in files compiled with it.
#include "accesses.h"

#include <dlfcn.h>
#include <link.h>

#include <map>
#include <memory>

thread_local float4 dynamic_shared[cuda_on_cpu::kMaxDynamic / sizeof(float4)];

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kGranule = 2;  // bytes that have one record: the smallest type that kernels write

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

std::map<std::uintptr_t, std::unique_ptr<Region>> buffers;  // by the end of the room behind them
std::unique_ptr<Region> static_region, dynamic_region;

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
  if (is_in(at, dynamic, dynamic + sizeof dynamic_shared)) return dynamic_region.get();
  if (is_in(at, static_region->begin, static_region->end)) return static_region.get();
  const auto found = buffers.upper_bound(at);
  if (found == buffers.end() || at < found->second->begin - found->second->guard) return nullptr;
  return found->second.get();
}

bool concurrent(const Stamp& before, const Stamp& after, bool shared) {
  if (before.block < now.first_block || (before.atomic && after.atomic)) return false;
  if (before.block != after.block) return !shared;
  if (before.thread == after.thread || before.interval != after.interval) return false;
  return before.thread / kWarp != after.thread / kWarp || before.warp_interval == after.warp_interval;
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
  if (now.thread < 0) return;
  ++counted.accesses;
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
  const Stamp stamp{now.block, now.interval, now.warp_intervals[static_cast<std::size_t>(now.thread / kWarp)],
                    static_cast<std::uint16_t>(now.thread), kind == Kind::atomic};
  const std::size_t last = (at + bytes - 1 - region->begin) / kGranule;
  for (std::size_t i = (at - region->begin) / kGranule; i <= last; ++i) {
    Record& record = region->record(i);
    const std::uint32_t writer = record.write.block;
    const bool written = region->shared ? writer == stamp.block : region->written || writer != 0;
    if (kind != Kind::write && !written) fail_by("unwritten memory");
    const auto conflicts = [&](const Stamp& before) {
      if (concurrent(before, stamp, region->shared))
        fail_by("data race with thread " + std::to_string(before.thread) +
                (before.block == stamp.block ? " of the same block" : " of another block"));
    };
    conflicts(record.write);
    if (kind != Kind::read) {
      conflicts(record.read[0]);
      conflicts(record.read[1]);
      record.write = stamp;
    } else {
      const Stamp& newest = record.read[0];
      if (newest.thread != stamp.thread || newest.block != stamp.block) record.read[1] = newest;
      record.read[0] = stamp;
    }
  }
}

}  // namespace

void begin_accesses(std::size_t dynamic_bytes) {
  if (!static_region) static_region = make_static_shared();
  dynamic_region =
      std::make_unique<Region>("dynamic shared memory", address_of(dynamic_shared), dynamic_bytes);
}

Region* make_region(std::string name, std::size_t bytes, bool written) {
  auto storage = std::make_unique<Pages>(bytes + 2 * kGuardBytes);
  auto region = std::make_unique<Region>(std::move(name), address_of(storage->begin() + kGuardBytes), bytes);
  region->guard = kGuardBytes;
  region->written = written;
  region->shared = false;
  region->storage = std::move(storage);
  const std::uintptr_t key = region->end + kGuardBytes;
  return (buffers[key] = std::move(region)).get();
}

void* begin_of(const Region* region) {
  return region->storage->begin() + kGuardBytes;
}

void remove_region(Region* region) {
  buffers.erase(region->end + region->guard);
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
