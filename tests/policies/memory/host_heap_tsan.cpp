// Threads that take and give back blocks of one heap, also each other's, under the thread sanitizer. Any
// race, or content that is not what was written, ends with a status other than 0.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memory/host_heap.h"

using dtk::policies::HostHeap;

namespace {

constexpr size_t kThreads = 4, kBlocks = 400;

struct Block {
  unsigned char* begin;
  size_t bytes;
};

bool holds(const Block& block, unsigned char mark) {
  for (size_t i = 0; i < block.bytes; ++i) {
    if (block.begin[i] != mark) return false;
  }
  return true;
}

}  // namespace

int main() {
  HostHeap heap(size_t{1} << 34);
  std::mutex mutex;
  std::vector<Block> given;  // from one thread to whichever comes next; hold 0xAA
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      for (size_t i = 0; i < kBlocks; ++i) {
        Block own{nullptr, 1 + random() % 100'000};
        own.begin = static_cast<unsigned char*>(heap.allocate(own.bytes));
        const auto mark = static_cast<unsigned char>(thread);
        std::memset(own.begin, mark, own.bytes);
        if (!holds(own, mark)) ++wrong;
        std::memset(own.begin, 0xAA, own.bytes);
        Block other{nullptr, 0};
        {
          const std::lock_guard lock(mutex);
          given.push_back(own);
          std::swap(given[random() % given.size()], given.back());
          if (given.size() > 8) {
            other = given.back();
            given.pop_back();
          }
        }
        if (other.begin != nullptr && (!holds(other, 0xAA) || !heap.free(other.begin))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Block& block : given) {
    if (!holds(block, 0xAA) || !heap.free(block.begin)) ++wrong;
  }
  std::printf("%d wrong, %zu bytes alive\n", wrong.load(), heap.use().live);
  return wrong == 0 && heap.use().live == 0 ? 0 : 1;
}
