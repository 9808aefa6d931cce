// Whose memory an allocation is: the scope's, else the operator's that the thread is inside of.
#pragma once
#include <ATen/record_function.h>
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <optional>

namespace dtk::policies {

struct Birthplace {
  OwnerId owner;
  uint64_t operation;  // 0: none that could end before the block dies
};

/// Of a block that the calling thread allocates now: of its OwnerScope, else of the innermost operator that
/// is not a mere allocation ("aten::empty" says nothing about why).
Birthplace birthplace();
/// The accounts that a block of this tier is booked in.
MemoryAccounts& accounts_of(MemoryTier tier);

/// Whether the calling thread is inside of the call with this number.
bool is_running(uint64_t operation);

/// Has the operators of all threads watched from now on; not while other threads run operators.
at::CallbackHandle track_operators();

/// Owner of the saved tensor that the calling thread unpacked last: a backward node knows no module path, its
/// saved tensors do.
std::optional<OwnerId> last_unpacked();
void note_unpacked(OwnerId owner);

}  // namespace dtk::policies
