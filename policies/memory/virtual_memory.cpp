#include "memory/virtual_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace dtk::policies {

void* reserve_memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (memory == MAP_FAILED) return nullptr;
  // The header of a block would else take a huge page. A kernel without them refuses, and has none.
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return memory;
}

void* reserve_addresses(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1,
                            /*offset=*/0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool make_writable(void* memory, size_t bytes) {
  return mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0;
}

void give_back_pages(void* memory, size_t bytes) {
  madvise(memory, bytes, MADV_DONTNEED);
}

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t memory_of_machine() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_size();
}

void release_memory(void* memory, size_t bytes) {
  munmap(memory, bytes);
}

}  // namespace dtk::policies
