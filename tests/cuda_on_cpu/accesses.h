// Between the emulator's two parts: fibers, and the records of what they access.
#pragma once

#include <sys/mman.h>

#include <new>
#include <vector>

#include "cuda_on_cpu.h"

namespace cuda_on_cpu {

inline constexpr int kWarp = 32;
inline constexpr std::size_t kMaxDynamic = 48 * 1024;  // what a launch gets without asking, on any device

// Pages of zeros that take memory when they are touched.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    begin_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin_ == MAP_FAILED) throw std::bad_alloc();
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(begin_, bytes_); }
  std::byte* begin() const { return static_cast<std::byte*>(begin_); }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* begin_;
};

// Whose turn it is, and since which barriers; blocks are counted over all launches, from 1.
struct Now {
  int thread = -1;                           // -1 outside of kernels
  std::uint32_t block = 0, first_block = 1;  // the launch's first
  std::uint16_t interval = 0;
  std::vector<std::uint16_t> warp_intervals;
};
extern Now now;
extern Counts counted;

// Ends the launch: a fiber can not throw into it.
[[noreturn]] void fail(const std::string& message);

// Before a launch, to whose dynamic shared memory nobody wrote.
void begin_accesses(std::size_t dynamic_bytes);

}  // namespace cuda_on_cpu
