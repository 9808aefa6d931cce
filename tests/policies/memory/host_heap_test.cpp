// The memory of large CPU tensors: blocks that are apart, and no more memory than is kept for them.
#include "memory/host_heap.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "support/catch.h"

using dtk::policies::HostHeap;

namespace {

constexpr size_t MiB = size_t{1} << 20;

// Bytes of the process's own memory.
size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

struct Block {
  unsigned char* begin = nullptr;
  size_t bytes = 0;
  unsigned char mark = 0;

  bool whole() const {
    return std::all_of(begin, begin + bytes, [&](unsigned char byte) { return byte == mark; });
  }
};

Block marked(HostHeap& heap, size_t bytes, unsigned char mark) {
  const Block block{static_cast<unsigned char*>(heap.allocate(bytes)), bytes, mark};
  REQUIRE(block.begin != nullptr);
  std::memset(block.begin, mark, bytes);
  return block;
}

}  // namespace

TEST_CASE("host heap: blocks are aligned, apart, and hold what was written") {
  HostHeap heap(size_t{1} << 34);
  std::mt19937 random(7);
  std::vector<Block> blocks;
  size_t live = 0, most = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!blocks.empty() && random() % 2 == 0) {
      const size_t one = random() % blocks.size();
      REQUIRE(blocks[one].whole());
      live -= (blocks[one].bytes + 63) / 64 * 64;
      REQUIRE(heap.free(blocks[one].begin));
      blocks[one] = blocks.back();
      blocks.pop_back();
    } else {
      const size_t bytes = 1 + random() % (random() % 8 == 0 ? 4 * MiB : MiB / 8);
      blocks.push_back(marked(heap, bytes, static_cast<unsigned char>(i)));
      REQUIRE(reinterpret_cast<uintptr_t>(blocks.back().begin) % HostHeap::kAlignment == 0);
      live += (bytes + 63) / 64 * 64;
      most = std::max(most, live);
    }
    REQUIRE(heap.use().live == live);
  }
  CHECK(heap.use().max_live == most);
  for (const Block& block : blocks) {
    CHECK(block.whole());
    CHECK(heap.free(block.begin));
  }
  CHECK(heap.use().live == 0);
}

TEST_CASE("host heap: a block that is free is used again, with its pages") {
  HostHeap heap(size_t{1} << 34);
  void* const first = heap.allocate(10 * MiB);
  void* const second = heap.allocate(5 * MiB);
  CHECK(heap.free(first));
  CHECK(heap.allocate(4 * MiB) == first);
  CHECK(heap.use().resident == 15 * MiB);
  // What is free on both sides of a block joins with it.
  CHECK(heap.free(first));
  CHECK(heap.free(second));
  CHECK(heap.allocate(15 * MiB) == first);
  CHECK(heap.use().resident == 15 * MiB);
}

TEST_CASE("host heap: the process keeps 9/8 of what was alive and 64 MiB, however the holes lie") {
  HostHeap heap(size_t{1} << 36);
  const size_t before = resident_bytes();
  std::vector<Block> pins, dying, large;
  const auto check = [&] {
    const HostHeap::Use use = heap.use();
    const size_t crumbs = pins.size() * 2 * 4096;  // less than a page each, on both sides of a pin
    REQUIRE(use.resident <= HostHeap::max_resident(use.max_live) + crumbs);
    REQUIRE(resident_bytes() < before + use.resident + 8 * MiB);
  };
  for (int i = 0; i < 400; ++i) {
    dying.push_back(marked(heap, MiB, 1));
    pins.push_back(marked(heap, MiB / 16, 2));
  }
  for (const Block& block : dying) REQUIRE(heap.free(block.begin));
  check();
  // No hole between two pins holds one of these.
  for (int i = 0; i < 100; ++i) {
    large.push_back(marked(heap, 4 * MiB, 3));
    check();
  }
  const size_t addresses = static_cast<size_t>(large.back().begin - dying.front().begin) + 4 * MiB;
  CHECK(addresses == 825 * MiB);  // all of it was written to, and would be kept else
  CHECK(resident_bytes() < before + 560 * MiB);
  for (const Block& block : pins) CHECK(block.whole());
  for (const Block& block : large) CHECK(block.whole());
}

TEST_CASE("host heap: addresses that are used up, and blocks of others, are refused") {
  HostHeap heap(MiB);
  void* const block = heap.allocate(MiB / 2);
  REQUIRE(block != nullptr);
  CHECK(heap.allocate(MiB) == nullptr);
  CHECK(heap.allocate(SIZE_MAX) == nullptr);
  CHECK_FALSE(heap.free(static_cast<char*>(block) + 64));
  int other = 0;
  CHECK_FALSE(heap.free(&other));
  CHECK(heap.free(block));
  CHECK_FALSE(heap.free(block));
  CHECK(heap.allocate(MiB / 2) == block);
  HostHeap none(SIZE_MAX / 2);  // more addresses than there are
  CHECK(none.allocate(64) == nullptr);
  CHECK_FALSE(none.free(block));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("host heap: large tensors that are counted lie in it, small ones do not") {
  const size_t before = dtk::policies::host_heap().use().live;
  at::Tensor large, small;
  {
    const dtk::policies::CountingAllocatorGuard counting;
    large = at::empty({1 << 20}, at::kFloat);
    small = at::empty({64}, at::kFloat);
  }
  const size_t taken = dtk::policies::host_heap().use().live - before;
  CHECK(taken >= 4 * MiB);
  CHECK(taken < 4 * MiB + 256);
  large.reset();  // also when it is no longer counted
  CHECK(dtk::policies::host_heap().use().live == before);
}
#endif
