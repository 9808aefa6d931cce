// Where the caching allocator would put storages, by hand-made series.
#include "device/segments.h"

#include <random>
#include <vector>

#include "support/catch.h"

using dtk::planner::Reserved;
using dtk::planner::Segments;

namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

}  // namespace

TEST_CASE("small storages share segments of 2 MiB, cut to multiples of 512 bytes") {
  Segments segments;
  for (uint64_t id = 0; id < 4096; ++id) segments.born(id, 1, 0);
  CHECK(segments.reserved().bytes == 2 * kMiB);
  segments.born(4096, 513, 0);
  CHECK(segments.reserved().bytes == 4 * kMiB);
  // Two neighbours that are free are one place; two that are not neighbours are none.
  segments.freed(7);
  segments.freed(9);
  segments.born(5000, 1024, 0);
  segments.freed(8);
  segments.born(5001, 1536, 0);
  for (uint64_t id = 5002; id < 5002 + 4096 - 4; ++id) segments.born(id, 512, 0);
  CHECK(segments.reserved().bytes == 4 * kMiB);
  segments.born(1, 512, 0);
  CHECK(segments.reserved().bytes == 6 * kMiB);
}

TEST_CASE("a storage of 1 to 10 MiB is cut out of 20 MiB, a larger one has a segment of its own") {
  Segments segments;
  segments.born(0, kMiB + 1, 0);
  CHECK(segments.reserved().bytes == 20 * kMiB);
  segments.born(1, 9 * kMiB, 0);
  segments.born(2, 9 * kMiB - 512, 0);
  CHECK(segments.reserved().bytes == 20 * kMiB);
  segments.born(3, 10 * kMiB, 0);
  CHECK(segments.reserved().bytes == 30 * kMiB);
  segments.born(4, 10 * kMiB + 512, 0);  // in 12 MiB: what is left, more than 1 MiB, is cut off
  CHECK(segments.reserved().bytes == 42 * kMiB);
  segments.born(5, kMiB + 512, 0);
  CHECK(segments.reserved().bytes == 42 * kMiB);
  segments.born(6, 31 * kMiB, 0);  // in 32 MiB: 1 MiB is not
  CHECK(segments.reserved().bytes == 74 * kMiB);
  segments.born(7, kMiB + 512, 0);
  CHECK(segments.reserved().bytes == 94 * kMiB);
}

TEST_CASE("the smallest free place is taken, of the same stream, and none is given back") {
  Segments segments;
  segments.born(0, 100 * kMiB, 0);
  segments.born(1, 50 * kMiB, 0);
  segments.freed(0);
  segments.freed(1);
  CHECK(segments.reserved().bytes == 150 * kMiB);
  segments.born(2, 40 * kMiB, 0);  // of the 50
  segments.born(3, 100 * kMiB, 0);
  CHECK(segments.reserved().bytes == 150 * kMiB);
  segments.born(4, 10 * kMiB, 0);  // beside the 40
  CHECK(segments.reserved().bytes == 150 * kMiB);
  segments.freed(3);
  segments.born(5, 100 * kMiB, 1);
  CHECK(segments.reserved().bytes == 250 * kMiB);
  segments.freed(99);  // made before
  segments.born(6, 1, 1);
  CHECK(segments.reserved() == Reserved{.bytes = 252 * kMiB, .small_bytes = 2 * kMiB, .segments = 4});
}

TEST_CASE("when all is freed each segment is whole again") {
  std::mt19937 random(7);
  Segments segments;
  std::vector<std::pair<uint64_t, int64_t>> alive, sizes;
  int64_t most = 0, now = 0;
  for (uint64_t id = 0; id < 20'000; ++id) {
    if (!alive.empty() && random() % 2 == 0) {
      std::swap(alive[random() % alive.size()], alive.back());
      segments.freed(alive.back().first);
      now -= alive.back().second;
      alive.pop_back();
    } else {
      const int64_t bytes = 512 * (1 + static_cast<int64_t>(random() % (random() % 2 == 0 ? 100 : 20'000)));
      segments.born(id, bytes, 0);
      alive.emplace_back(id, bytes);
      now += bytes;
      most = std::max(most, now);
    }
    REQUIRE(segments.reserved().bytes >= now);
  }
  CHECK(segments.reserved().bytes >= most);
  for (const auto& [id, bytes] : alive) segments.freed(id);
  // Segments of 2 and of 20 MiB, each of which must be found whole.
  const Reserved whole = segments.reserved();
  uint64_t id = 1'000'000;
  for (int64_t left = whole.small_bytes; left > 0; left -= kMiB) segments.born(id++, kMiB, 0);
  for (int64_t left = whole.bytes - whole.small_bytes; left > 0; left -= 20 * kMiB)
    segments.born(id++, 20 * kMiB, 0);
  CHECK(segments.reserved() == whole);
  segments.born(id++, kMiB, 0);
  segments.born(id++, 20 * kMiB, 0);
  CHECK(segments.reserved().bytes == whole.bytes + 22 * kMiB);
}
