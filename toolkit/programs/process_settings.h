// What a process that trains on the CPU asks of glibc and OpenMP; dit-train and the benchmarks ask the same.
#pragma once

namespace dtk {

/// Keeps freed memory in the process and asks for huge pages for it, and lets OpenMP threads that wait give
/// up their core. To be called first in main(): OpenMP and glibc read their environment when a program is
/// loaded, so the program may start again, once. A GOMP_SPINCOUNT, OMP_WAIT_POLICY or GLIBC_TUNABLES of the
/// user's own stays.
void apply_process_settings();

/// The first of them alone, for a process that computes nothing.
void keep_freed_memory();

}  // namespace dtk
