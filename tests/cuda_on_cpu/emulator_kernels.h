// Kernels that do what the emulator must get right, or must find. Each returns a cudaError_t.
#pragma once

#include <cuda_runtime.h>

namespace emulator_test {

int shuffles(int* out, int operand, int threads);                 // out (4, threads)
int half_masks(int* out);                                         // out (32)
int reverse(const int* in, int* out, int threads, bool barrier);  // in, out (threads), of at most 80
int neighbours(int* out, bool syncwarp);                          // out (32)
int sum_by_atomics(float* out, const float* in, int count);       // out (1)
int unset_shared(float* out);                                     // out (64)
int barrier_or_shuffle(int* out);                                 // out (32)
int early_return(int* out);                                       // out (64)
int two_barriers(int* out);                                       // out (64)
int bad_mask(int* out, unsigned mask);                            // out (32)
int dynamic_row(float* out, int bytes, int written);              // out (1)
int number(int* out, int count, dim3 grid, dim3 block);           // out (count)
int same_place(int* out, int blocks, bool atomic);                // out (1)
int add_one(int* values, int count);
int read_pairs(const float* in, float* out, int first);

}  // namespace emulator_test
