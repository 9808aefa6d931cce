// Bytes of CPU tensors in a process, counted alike in a program of C++ and, through ctypes, in one of Python.
#pragma once
#include <cstdint>

extern "C" {
/// From now on the process's CPU tensors are counted; once.
void dtk_count_install();
/// Bytes that are alive, and the most that were since dtk_count_reset().
int64_t dtk_count_alive();
int64_t dtk_count_peak();
void dtk_count_reset();
}
