// The ring's threads under the thread sanitizer: averages of changing weights through delayed copies,
// compared bit for bit with the same averages made on one thread. Any race or difference ends with a status
// other than 0.
#include <dtk/policies/internal/staging_ring.h>

#include <cstdio>

#include "support/device/delayed_staging_copies.h"

using dtk::policies::Chunk;
using dtk::policies::StagingRing;
using dtk::test::DelayedStagingCopies;
using std::chrono::microseconds;

namespace {

constexpr size_t kChunks = 7, kFloats = 64;

using Values = std::vector<std::vector<float>>;

Values values(float value) {
  return Values(kChunks, std::vector<float>(kFloats, value));
}

void average(float* into, const float* weights, double weight) {
  for (size_t i = 0; i < kFloats; ++i) into[i] += static_cast<float>(weight) * (weights[i] - into[i]);
}

std::vector<Chunk> chunks_of(const Values& weights) {
  std::vector<Chunk> round;
  for (size_t i = 0; i < kChunks; ++i) round.push_back({weights[i].data(), kFloats * sizeof(float), i});
  return round;
}

struct Slots {
  explicit Slots(size_t count) : memory(count, std::vector<float>(kFloats)) {}
  std::vector<void*> pointers() {
    std::vector<void*> list;
    for (auto& slot : memory) list.push_back(slot.data());
    return list;
  }
  Values memory;
};

bool equals_one_thread(size_t slot_count, int rounds, microseconds copy, microseconds consume) {
  Values weights = values(0.0f), averages = values(0.0f), expected = values(0.0f);
  Slots slots(slot_count);
  DelayedStagingCopies engine(copy, slot_count);
  StagingRing ring(engine, slots.pointers(), [&](const Chunk& chunk, const void* contents, double weight) {
    std::this_thread::sleep_for(consume);
    average(averages[chunk.index].data(), static_cast<const float*>(contents), weight);
  });
  bool equal = true;
  for (int n = 0; n < rounds; ++n) {
    ring.wait_copied();
    for (size_t i = 0; i < kChunks; ++i) {
      for (float& value : weights[i]) value = static_cast<float>(n * 31 + static_cast<int>(i)) * 0.37f;
      average(expected[i].data(), weights[i].data(), 0.1);
    }
    ring.post(chunks_of(weights), 0.1);
    equal = equal && ring.hidden_seconds() >= 0.0;  // read while the ring's thread adds to it
    if (n % 5 != 4) continue;
    ring.flush();
    equal = equal && averages == expected;
  }
  return equal && ring.exposed_seconds() + ring.hidden_seconds() > 0.0;
}

bool ends_with_work_left() {
  const Values weights = values(1.0f);
  for (int i = 0; i < 20; ++i) {
    Slots slots(2);
    DelayedStagingCopies engine(microseconds(300), static_cast<uint64_t>(i));
    StagingRing ring(engine, slots.pointers(), [](const Chunk&, const void*, double) {});
    ring.post(chunks_of(weights), 0.1);
    if (i % 2 == 0) ring.wait_copied();
  }
  return true;
}

bool throws_what_the_worker_threw() {
  const Values weights = values(1.0f);
  int thrown = 0;
  for (int fault = 0; fault < 3; ++fault) {
    Slots slots(2);
    DelayedStagingCopies engine(microseconds(50));
    if (fault == 0) engine.fail_begin = 3;
    if (fault == 1) engine.fail_wait = 3;
    StagingRing ring(engine, slots.pointers(), [&](const Chunk& chunk, const void*, double) {
      if (fault == 2 && chunk.index == 3) throw std::runtime_error("the consumer fails");
    });
    ring.post(chunks_of(weights), 0.1);
    for (int call = 0; call < 3; ++call) {
      try {
        ring.flush();
      } catch (const std::runtime_error&) {
        ++thrown;
      }
    }
  }
  return thrown == 9;
}

}  // namespace

int main() {
  const bool good = equals_one_thread(1, 20, microseconds(50), microseconds(0)) &&
                    equals_one_thread(3, 60, microseconds(100), microseconds(0)) &&
                    equals_one_thread(3, 20, microseconds(0), microseconds(200)) && ends_with_work_left() &&
                    throws_what_the_worker_threw();
  std::puts(good ? "staging ring: no difference" : "staging ring: averages differ or an error was lost");
  return good ? 0 : 1;
}
