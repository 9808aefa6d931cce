// The ring: order, what waits for what, and errors that cross from its thread.
#include <dtk/policies/internal/staging_ring.h>

#include <numeric>

#include "support/catch.h"
#include "support/device/delayed_staging_copies.h"

using dtk::policies::Chunk;
using dtk::policies::StagingRing;
using dtk::test::DelayedStagingCopies;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

struct Memory {
  explicit Memory(size_t chunks, size_t slot_count = 2) : source(chunks), slots(slot_count) {
    std::iota(source.begin(), source.end(), 1.0f);
    for (size_t i = 0; i < chunks; ++i) round.push_back({&source[i], sizeof(float), i});
    for (float& slot : slots) pointers.push_back(&slot);
  }
  std::vector<float> source, slots;
  std::vector<Chunk> round;
  std::vector<void*> pointers;
};

struct Seen {
  size_t index;
  float value;
  double argument;
  friend bool operator==(const Seen&, const Seen&) = default;
};

}  // namespace

TEST_CASE("staging ring: every chunk arrives once, in order, with its round's argument") {
  Memory memory(5, GENERATE(1u, 2u, 3u, 8u));
  DelayedStagingCopies engine(microseconds(200));
  std::vector<Seen> seen, expected;
  StagingRing ring(engine, memory.pointers, [&](const Chunk& chunk, const void* contents, double argument) {
    seen.push_back({chunk.index, *static_cast<const float*>(contents), argument});
  });
  for (int n = 0; n < 20; ++n) {
    ring.wait_copied();
    for (size_t i = 0; i < memory.source.size(); ++i) {
      memory.source[i] = static_cast<float>(10 * n) + static_cast<float>(i);
      expected.push_back({i, memory.source[i], 0.5 * n});
    }
    ring.post(memory.round, 0.5 * n);
  }
  ring.flush();
  CHECK((seen == expected));
  CHECK(engine.marks == 20);
  CHECK(engine.holds == 19);  // the first wait_copied found nothing posted
}

TEST_CASE("staging ring: wait_copied waits for the copies, not for the consumer") {
  Memory memory(2);
  DelayedStagingCopies engine(microseconds(0));
  std::mutex consumer;
  StagingRing ring(engine, memory.pointers,
                   [&](const Chunk&, const void*, double) { std::lock_guard wait(consumer); });
  {
    std::lock_guard stuck(consumer);
    ring.post(memory.round, 0.0);
    ring.wait_copied();
    CHECK(memory.slots == memory.source);  // both copies have arrived, none is consumed
  }
  ring.flush();
}

TEST_CASE("staging ring: with all slots taken the wait for the consumer is exposed, otherwise hidden") {
  Memory memory(6);
  DelayedStagingCopies engine(microseconds(0));
  StagingRing ring(engine, memory.pointers,
                   [](const Chunk&, const void*, double) { std::this_thread::sleep_for(milliseconds(10)); });
  ring.post({memory.round[0], memory.round[1]}, 0.0);
  ring.flush();
  CHECK(ring.exposed_seconds() == 0.0);
  CHECK(ring.hidden_seconds() >= 0.020);
  ring.post(memory.round, 0.0);
  ring.wait_copied();  // 6 chunks, 2 slots: four are consumed before the last begins
  CHECK(ring.exposed_seconds() > 0.010);
}

TEST_CASE("staging ring: waiting for copies is not hidden work") {
  Memory memory(20);
  DelayedStagingCopies engine(milliseconds(4));
  StagingRing ring(engine, memory.pointers, [](const Chunk&, const void*, double) {});
  const auto start = std::chrono::steady_clock::now();
  ring.post(memory.round, 0.0);
  ring.flush();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  REQUIRE(waited.count() > 0.010);
  CHECK(ring.hidden_seconds() < 0.1 * waited.count());
}

TEST_CASE("staging ring: what the consumer or the engine throws reaches every later call") {
  Memory memory(5);
  DelayedStagingCopies engine(microseconds(50));
  std::string message;
  SECTION("consumer") {
    message = "the consumer fails";
  }
  SECTION("begin") {
    message = "the copy cannot begin";
    engine.fail_begin = 3;
  }
  SECTION("wait") {
    message = "the copy does not arrive";
    engine.fail_wait = 1;
  }
  StagingRing ring(engine, memory.pointers, [&](const Chunk& chunk, const void*, double) {
    if (chunk.index == 2) throw std::runtime_error("the consumer fails");
  });
  ring.post(memory.round, 0.0);
  CHECK_THROWS_WITH(ring.flush(), message);
  CHECK_THROWS_WITH(ring.wait_copied(), message);
  CHECK_THROWS_WITH(ring.post(memory.round, 0.0), message);
  CHECK_THROWS_WITH(ring.flush(), message);
}

TEST_CASE("staging ring: an end with work left drops it") {
  Memory memory(50);
  DelayedStagingCopies engine(milliseconds(2));
  std::atomic<int> consumed{0};
  {
    StagingRing ring(engine, memory.pointers, [&](const Chunk&, const void*, double) { ++consumed; });
    ring.post(memory.round, 0.0);
  }
  CHECK(consumed < 50);
}

TEST_CASE("staging ring: without a slot there is no ring") {
  DelayedStagingCopies engine(microseconds(0));
  CHECK_THROWS_WITH(StagingRing(engine, {}, {}), "staging ring: 0 slots; at least 1 is needed");
}
