// CPU memory that is filled with NaN when it is freed, so that whoever still reads it computes NaN.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace dtk::test {

/// Installs it for the lifetime of the object. Blocks may outlive it.
class PoisonedMemory {
 public:
  PoisonedMemory() : previous_(c10::GetCPUAllocator()) {
    static auto* const allocator = new Allocator;  // leaked: blocks may be freed at the end of the process
    c10::SetCPUAllocator(allocator, kPriority);
  }
  ~PoisonedMemory() { c10::SetCPUAllocator(previous_, kPriority); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

 private:
  static constexpr uint8_t kPriority = 1;  // that of the counting allocator: the later one wins
  static constexpr size_t kHeader = 64;

  class Allocator final : public c10::Allocator {
   public:
    at::DataPtr allocate(size_t bytes) override {
      const c10::Device cpu(c10::kCPU);
      void* base = nullptr;
      if (posix_memalign(&base, kHeader, kHeader + bytes) != 0) throw std::bad_alloc();
      std::memcpy(base, &bytes, sizeof bytes);
      void* const memory = static_cast<char*>(base) + kHeader;
      return {memory, memory, &release, cpu};
    }
    at::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, size_t bytes) const override {
      default_copy_data(to, from, bytes);
    }

   private:
    static void release(void* memory) {
      char* const base = static_cast<char*>(memory) - kHeader;
      size_t bytes = 0;
      std::memcpy(&bytes, base, sizeof bytes);
      std::memset(memory, 0xFF, bytes);  // a NaN in every float
      std::free(base);
    }
  };

  c10::Allocator* const previous_;
};

}  // namespace dtk::test
