// What a process that trains on the CPU asks of glibc and OpenMP; dit-train and the benchmarks ask the same.
#pragma once

namespace dtk {

/// Keeps freed memory in the process, and lets OpenMP threads that wait give up their core. To be called
/// first in main(): OpenMP reads its environment when a program is loaded, so the program may start again,
/// once. A GOMP_SPINCOUNT or OMP_WAIT_POLICY of the user's own stays.
void apply_process_settings();

/// The first of the two alone, for a process that computes nothing.
void keep_freed_memory();

}  // namespace dtk
