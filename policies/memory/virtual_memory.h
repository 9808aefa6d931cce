// Memory that a plan names and hardly touches: addresses without a promise of the system to back them all, so
// that a job larger than the machine can be planned on it.
#pragma once
#include <cstddef>

namespace dtk::policies {

/// Smaller blocks come from LibTorch's allocator: the C library keeps and reuses what it maps once, and calls
/// of the system for each of them would take longer than the plan.
inline constexpr size_t kMinReserved = size_t{32} << 20;

/// Zeros, from a page's beginning; pages take memory when they are written to. Null where the system gives
/// no more addresses, which a process's limit (ulimit -v) or the kernel's rules decide. Thread-safe.
void* reserve_memory(size_t bytes);

/// Gives back what reserve_memory(bytes) returned. Thread-safe.
void release_memory(void* memory, size_t bytes);

/// Addresses alone, which nothing may be written to before make_writable(). Null as reserve_memory(). To be
/// given back by release_memory(). These four are thread-safe, too.
void* reserve_addresses(size_t bytes);
/// Zeros. Both on whole pages. False where the system has no memory for them.
bool make_writable(void* memory, size_t bytes);
/// Lets the memory of whole pages go; they are zeros then, and writable.
void give_back_pages(void* memory, size_t bytes);

/// In bytes, as is the machine's memory.
size_t page_size();
size_t memory_of_machine();

}  // namespace dtk::policies
