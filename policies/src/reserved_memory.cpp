#include "reserved_memory.h"

#include <sys/mman.h>

namespace dtk::policies {

void* reserve_memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (memory == MAP_FAILED) return nullptr;
  // The header of a block would else take a huge page. A kernel without them refuses, and has none.
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return memory;
}

void release_memory(void* memory, size_t bytes) {
  munmap(memory, bytes);
}

}  // namespace dtk::policies
