// For writers of allocators: how memory that the counting CPU allocator does not make enters the ledger's
// books, so that claim(), OwnerScope and the saved-tensor ledger work on it too.
#pragma once
#include <c10/core/Allocator.h>
#include <dtk/policies/memory_accounts.h>

#include <cstdint>

namespace dtk::policies {

/// Books a block born now: for the calling thread's OwnerScope, else for the operator the thread is
/// inside of. Operators are known while a CountingAllocatorGuard lives.
void book_birth(MemoryAccounts& accounts, MemoryBlock* block, int64_t bytes);
/// Books its death; as scratch if the operator it was born in is still running on this thread.
void book_death(MemoryAccounts& accounts, MemoryBlock* block);

/// The books of a device whose storages are counted one by one: today the simulated one of dtk::planner.
/// Never destroyed.
MemoryAccounts& device_accounts();

/// Declares that storages with this deleter carry their MemoryBlock, booked in device_accounts(), as context.
/// One deleter in a process; once, before the first such storage.
void count_storages_freed_by(c10::DeleterFnPtr deleter);

}  // namespace dtk::policies
