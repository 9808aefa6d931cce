// Runs the source of CUDA kernels on the CPU, a fiber for each thread, to test values and find errors without
// a GPU.
//
// The compiler reads it in front of a .cu file (g++ -x c++ -include cuda_on_cpu.h). That file holds no
// #ifdef, launches by cudaLaunchKernelEx, and calls its dynamic shared memory, at file scope,
//   extern __shared__ float4 dynamic_shared[];
// With -fsanitize=thread the compiler calls a function at each access of the kernels; those are ours, and
// libtsan is never linked. A launch throws Failure at
//   a barrier that a thread of the block does not reach, or that some reach elsewhere;
//   a warp operation whose mask lacks the caller, or names a lane that is gone or absent or comes to another
//   operation; a data race, an access outside of a Buffer or of shared memory, a misaligned one, a read of
//   unwritten memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __shared__
#undef __launch_bounds__
#define __shared__ \
  thread_local  // one for each block: blocks run one after the other, on one thread of the system
#define __launch_bounds__(...)

// Set before a fiber goes on.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace cuda_on_cpu {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// In which order ready threads, and blocks, get their turn. No result may depend on it.
enum class Order { ascending, descending, shuffled };
struct Schedule {
  Order threads = Order::ascending, blocks = Order::ascending;
  unsigned seed = 1;             // of shuffled
  std::int64_t last_blocks = 0;  // where positive, a launch runs so many of its blocks, the last ones
};
void set_schedule(const Schedule& schedule);

// Since the program's start. Accesses stay 0 where the kernels were compiled without the checks.
struct Counts {
  std::uint64_t blocks = 0, barriers = 0, warp_operations = 0, accesses = 0;
};
const Counts& counts();

struct Region;
// Zeroed memory that takes nothing until it is touched. `written`: a kernel may read it before one wrote
// there.
Region* make_region(std::string name, std::size_t bytes, bool written);
void* begin_of(const Region* region);
void remove_region(Region* region);

// Device memory, with room on both sides that nobody may touch.
template <class T>
class Buffer {
 public:
  Buffer(std::string name, std::size_t size, bool written = false)
      : size_(size), region_(make_region(std::move(name), size * sizeof(T), written)) {}
  Buffer(std::string name, std::span<const T> values) : Buffer(std::move(name), values.size(), true) {
    std::copy(values.begin(), values.end(), data());
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { remove_region(region_); }

  T* data() const { return static_cast<T*>(begin_of(region_)); }
  std::span<T> values() const { return {data(), size_}; }

 private:
  std::size_t size_;
  Region* region_;
};

using Site = std::source_location;
enum class WarpOperation { sync, shuffle, shuffle_up, shuffle_down, shuffle_xor };

cudaError_t launch(const cudaLaunchConfig_t& config, const std::function<void()>& body);
void barrier(const Site& site);
std::uint64_t warp(WarpOperation operation, unsigned mask, std::uint64_t value, int operand,
                   const Site& site);
void atomic_access(void* address, std::size_t bytes);

template <class T>
T shuffle(WarpOperation operation, unsigned mask, T value, int operand, const Site& site) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp(operation, mask, bits, operand, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class... Expected, class... Actual>
cudaError_t launch_kernel(const cudaLaunchConfig_t* config, void (*kernel)(Expected...), Actual&&... actual) {
  const std::tuple<Expected...> arguments(std::forward<Actual>(actual)...);
  return launch(*config, [&] { std::apply(kernel, arguments); });
}

}  // namespace cuda_on_cpu

// A macro, for the CUDA runtime has a template of that name.
#define cudaLaunchKernelEx cuda_on_cpu::launch_kernel

// Nobody passes `site`: it is where the call stands.
inline void __syncthreads(const cuda_on_cpu::Site& site = cuda_on_cpu::Site::current()) {
  cuda_on_cpu::barrier(site);
}
inline void __syncwarp(unsigned mask = 0xffffffffU,
                       const cuda_on_cpu::Site& site = cuda_on_cpu::Site::current()) {
  cuda_on_cpu::warp(cuda_on_cpu::WarpOperation::sync, mask, 0, 0, site);
}
#define DTK_SHUFFLE(name, operation)                                                                \
  template <class T>                                                                                \
  T name(unsigned mask, T value, int operand,                                                       \
         const cuda_on_cpu::Site& site = cuda_on_cpu::Site::current()) {                            \
    return cuda_on_cpu::shuffle(cuda_on_cpu::WarpOperation::operation, mask, value, operand, site); \
  }
DTK_SHUFFLE(__shfl_sync, shuffle)
DTK_SHUFFLE(__shfl_up_sync, shuffle_up)
DTK_SHUFFLE(__shfl_down_sync, shuffle_down)
DTK_SHUFFLE(__shfl_xor_sync, shuffle_xor)
#undef DTK_SHUFFLE

// Not instrumented itself: its accesses would count as plain ones.
template <class T>
__attribute__((no_sanitize_thread, noinline)) T atomicAdd(T* address, std::type_identity_t<T> value) {
  cuda_on_cpu::atomic_access(address, sizeof(T));
  T old;
  std::memcpy(&old, address, sizeof(T));
  const T sum = old + value;
  std::memcpy(address, &sum, sizeof(T));
  return old;
}

// Approximate on the device.
inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
using std::max;
using std::min;
