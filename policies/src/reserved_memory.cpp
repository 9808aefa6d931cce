#include "reserved_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace dtk::policies {
namespace {

struct Reserved {
  std::mutex mutex;  // guards sizes
  std::unordered_map<void*, size_t> sizes;
  std::atomic<size_t> count{0};  // of them
};

Reserved& reserved() {
  static auto* const all = new Reserved;  // leaked: blocks are freed after static destruction
  return *all;
}

}  // namespace

void* reserve_memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (memory == MAP_FAILED) return nullptr;
  // The header of a block would else take a huge page. A kernel without them refuses, and has none.
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  Reserved& all = reserved();
  const std::lock_guard lock(all.mutex);
  all.sizes[memory] = bytes;
  ++all.count;
  return memory;
}

bool release_if_reserved(void* memory) {
  Reserved& all = reserved();
  if (all.count == 0) return false;
  size_t bytes = 0;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.sizes.find(memory);
    if (found == all.sizes.end()) return false;
    bytes = found->second;
    all.sizes.erase(found);
    --all.count;
  }
  munmap(memory, bytes);
  return true;
}

}  // namespace dtk::policies
