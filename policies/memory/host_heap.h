// Memory of large CPU blocks, which a training step takes and gives back in sizes that repeat.
//
// The C library's allocator serves it badly. Small blocks that live long, such as nodes of the graph, end up
// between the large ones, so that what these free does not join and the process grows to several times of
// what is alive; or each large block is mapped on its own, and every step pays for fresh, zeroed pages. Here
// large blocks have a range of addresses to themselves, and what is free in it stays with the process as long
// as there is little of it.
#pragma once
#include <dtk/policies/internal/scoped.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace dtk::policies {

class HostHeap : NotCopied {
 public:
  /// Blocks come from `address_space` bytes of addresses; none of it is memory before it is written to.
  explicit HostHeap(size_t address_space);
  ~HostHeap();

  /// At least `bytes` > 0, aligned to kAlignment, with any content; null if the system gives none.
  /// Thread-safe.
  void* allocate(size_t bytes);
  /// Gives back what allocate() returned; false, and nothing happens, for any other address. Thread-safe.
  bool free(void* block);

  struct Use {
    size_t live = 0;      // bytes of blocks
    size_t max_live = 0;  // so far
    size_t resident = 0;  // at most so many are memory of the process: live ones, and free ones that are kept
  };
  Use use() const;
  /// `resident` never exceeds what this says of `max_live`, but for what less than a page of lies free
  /// between two blocks.
  static size_t max_resident(size_t max_live) { return max_live + max_live / 8 + kAlwaysKept; }

  static constexpr size_t kAlignment = 64;

 private:
  static constexpr size_t kAlwaysKept = size_t{64} << 20;

  // Free ranges by offset and by size. Neighbours of one kind are one range.
  class FreeRanges {
   public:
    void add(size_t offset, size_t size);
    /// `size` bytes at the beginning of the smallest range that has so many.
    bool take(size_t size, size_t& offset);
    /// The largest range; {0, 0} if there is none.
    std::pair<size_t, size_t> largest() const;
    void remove(size_t offset);
    size_t bytes() const { return bytes_; }

   private:
    std::map<size_t, size_t> sizes_;
    std::set<std::pair<size_t, size_t>> by_size_;
    size_t bytes_ = 0;
  };

  bool take_unused(size_t size, size_t& offset);
  void let_go(size_t excess);

  char* base_ = nullptr;
  size_t address_space_ = 0;
  mutable std::mutex mutex_;
  size_t top_ = 0;                           // from here on no address was ever used
  size_t writable_ = 0;                      // up to here the system lets the process write
  FreeRanges kept_;                          // free, and memory of the process
  FreeRanges empty_;                         // free, and no memory
  std::unordered_map<size_t, size_t> live_;  // sizes, by offset
  Use use_;
};

/// That of the process. Never destroyed. Smaller blocks than kMinOfHeap are better served elsewhere.
HostHeap& host_heap();
inline constexpr size_t kMinOfHeap = size_t{64} << 10;

/// Of the heap or of LibTorch, as the size says; null only if neither has any. Under a sanitizer, which wants
/// to see each block, of LibTorch. Throws c10::Error as c10::alloc_cpu().
void* allocate_host_block(size_t bytes);
void free_host_block(void* block);

}  // namespace dtk::policies
