#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/internal/host_memory.h>

#include <algorithm>

#include "memory/host_heap.h"
#include "memory/virtual_memory.h"

namespace dtk::policies {

// Addresses are plenty: so many that ranges without memory need never be searched for a better fit. Leaked:
// blocks are freed to the very end.
HostHeap& host_heap() {
  static auto* heap = new HostHeap(std::max(8 * memory_of_machine(), size_t{1} << 38));
  return *heap;
}

void* allocate_host_block(size_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (bytes >= kMinOfHeap) {
    if (void* const block = host_heap().allocate(bytes)) return block;
  }
#endif
  return c10::alloc_cpu(bytes);
}

void free_host_block(void* block) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (host_heap().free(block)) return;
#endif
  c10::free_cpu(block);
}

namespace {

class HostHeapAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    const at::Device cpu(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &free_block, cpu};
    void* const block = block_of(bytes);
    return {block, block, &free_block, cpu};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  // LibTorch's own allocator refuses by an error of no type of its own.
  static void* block_of(size_t bytes) try { return allocate_host_block(bytes); } catch (const c10::Error&) {
    throw c10::OutOfMemoryError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
        c10::str("out of CPU memory: an allocation of ", bytes, " bytes was refused"));
  }
  static void free_block(void* block) {
    if (block != nullptr) free_host_block(block);
  }
};

}  // namespace

void use_host_heap() {
  static auto* allocator = new HostHeapAllocator;  // leaked: as the heap
  constexpr uint8_t kPriority = 1;                 // above the stock allocator's 0
  c10::SetCPUAllocator(allocator, kPriority);
}

}  // namespace dtk::policies
