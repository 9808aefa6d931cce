// What a process asks of glibc and OpenMP, and how it ends; dit-train and the benchmarks that train ask the
// same.
#pragma once

namespace dtk {

/// Keeps freed memory in the process, large CPU tensors in a heap of their own (host_memory.h), and lets
/// OpenMP threads that wait give up their core. To be called first in main(). OpenMP reads its environment
/// when a program is loaded, so a program that calls this starts again, once, before LibTorch is set up. A
/// GOMP_SPINCOUNT or OMP_WAIT_POLICY of the user's own stays.
void apply_process_settings();

/// The first of the two alone, for a process that computes nothing.
void keep_freed_memory();

/// Ends the process without static destructors: LibTorch's take a tenth of a second, as long as a plan.
/// Writes what stdio holds. For a process whose output was checked and that has no threads of its own.
[[noreturn]] void leave(int code);

}  // namespace dtk
