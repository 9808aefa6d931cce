// The choice of what segments keep: against all choices there are, and where it lies in a chain of blocks.
#include <dtk/planner/placement.h>

#include <algorithm>
#include <random>

#include "support/catch.h"
#include "support/error_text.h"

using namespace dtk::planner;

namespace {

using Chain = std::vector<SegmentChoices>;

// The definition in placement.h, for one choice.
Placement chosen(const Chain& chain, const std::vector<size_t>& levels) {
  Placement one{levels, 0, 0};
  for (size_t i = 0; i < chain.size(); ++i) {
    int64_t alive = chain[i].other_bytes + chain[i].levels[levels[i]].working_bytes;
    for (size_t j = 0; j <= i; ++j) alive += chain[j].levels[levels[j]].kept_bytes;
    one.peak_bytes = std::max(one.peak_bytes, alive);
    one.flops += chain[i].levels[levels[i]].flops;
  }
  return one;
}

std::vector<Placement> all_placements(const Chain& chain) {
  std::vector<Placement> all;
  std::vector<size_t> levels(chain.size(), 0);
  for (;;) {
    all.push_back(chosen(chain, levels));
    size_t i = 0;
    while (i < chain.size() && ++levels[i] == chain[i].levels.size()) levels[i++] = 0;
    if (i == chain.size()) return all;
  }
}

Chain random_chain(std::mt19937& random) {
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); };
  Chain chain(static_cast<size_t>(1 + below(7)));
  for (SegmentChoices& segment : chain) {
    segment.other_bytes = below(40);
    segment.levels.resize(static_cast<size_t>(1 + below(4)));
    for (SegmentLevel& level : segment.levels) level = {below(50), below(50), below(10)};
  }
  return chain;
}

// `count` equal blocks that keep 100 bytes, or 10 and work with 90 more at 7 FLOPs.
Chain blocks(size_t count) {
  return Chain(count, SegmentChoices{{{100, 0, 0}, {10, 90, 7}}, 5});
}

}  // namespace

TEST_CASE("a placement is the best of all there are, at every budget") {
  std::mt19937 random(20261122);
  int refused = 0, between = 0;
  for (int i = 0; i < 300; ++i) {
    const Chain chain = random_chain(random);
    const std::vector<Placement> all = all_placements(chain);
    int64_t lowest = all.front().peak_bytes, highest = 0;
    for (const Placement& one : all) {
      lowest = std::min(lowest, one.peak_bytes);
      highest = std::max(highest, one.peak_bytes);
    }
    for (const int64_t budget : {lowest - 1, lowest, (lowest + highest) / 2, highest}) {
      INFO("chain " << i << ", budget " << budget);
      const auto found = place_segments(chain, budget);
      std::optional<int64_t> fewest;
      for (const Placement& one : all) {
        if (one.peak_bytes <= budget && (!fewest || one.flops < *fewest)) fewest = one.flops;
      }
      REQUIRE(found.has_value() == fewest.has_value());
      refused += !found;
      if (!found) continue;
      between += found->peak_bytes > lowest && found->peak_bytes < highest;
      CHECK(found->flops == *fewest);
      const Placement again = chosen(chain, found->levels);
      CHECK(again.peak_bytes == found->peak_bytes);
      CHECK(again.flops == found->flops);
      CHECK(found->peak_bytes <= budget);
    }
  }
  CHECK(refused == 300);
  CHECK(between > 100);
}

TEST_CASE("of equal blocks the last ones keep all: they run backward first, when nobody else works") {
  const auto levels = [](int64_t budget) { return place_segments(blocks(6), budget).value().levels; };
  CHECK(levels(605) == std::vector<size_t>(6, 0));  // 5 + 6 * 100
  // The first recomputes: 5 + 10 + 90 for it, 5 + 10 + 5 * 100 for the last.
  CHECK(levels(604) == std::vector<size_t>{1, 0, 0, 0, 0, 0});
  CHECK(levels(515) == std::vector<size_t>{1, 0, 0, 0, 0, 0});
  CHECK(levels(514) == std::vector<size_t>{1, 1, 0, 0, 0, 0});
  // All: 5 + 6 * 10 + 90 while the last runs backward, the last but one keeping its own is 5 + 50 + 100.
  CHECK(levels(155) == std::vector<size_t>{1, 1, 1, 1, 1, 0});
  CHECK_FALSE(place_segments(blocks(6), 154));
}

TEST_CASE("many equal segments are no work") {
  const auto found = place_segments(blocks(2000), 100'000);
  REQUIRE(found);
  CHECK(found->peak_bytes <= 100'000);
  CHECK(found->flops % 7 == 0);
  const int64_t again = found->flops / 7;
  // One fewer would exceed it: each that keeps all adds 90 bytes.
  CHECK(found->peak_bytes + 90 > 100'000);
  CHECK(again == static_cast<int64_t>(std::count(found->levels.begin(), found->levels.end(), size_t{1})));
}

TEST_CASE(
    "segments that differ too much for every choice to be looked at are placed within the budget, nearly "
    "best") {
  Chain powers;
  constexpr int kSegments = 24;  // 2^24 choices, none better than another
  constexpr int64_t kAll = (int64_t{1} << kSegments) - 1;
  for (int i = 0; i < kSegments; ++i)
    powers.push_back({{{int64_t{1} << i, 0, 0}, {0, 0, int64_t{1} << i}}, 0});
  for (const int64_t budget : {kAll / 3, kAll / 2, kAll - 1}) {
    const auto found = place_segments(powers, budget);
    REQUIRE(found);
    CHECK(found->peak_bytes <= budget);
    CHECK(found->peak_bytes + found->flops == kAll);
    CHECK(budget - found->peak_bytes <= kSegments * kAll / 20'000);
  }
  CHECK(place_segments(powers, 0)->flops == kAll);
  CHECK(place_segments(powers, kAll)->flops == 0);
}

TEST_CASE("chains that cannot be placed") {
  const auto refused = [](const Chain& chain) {
    return dtk::test::error_text<std::invalid_argument>([&] { place_segments(chain, 1000); });
  };
  CHECK(refused({{{{1, 1, 1}}, 0}, {}}) == "place_segments: segment 1 has no level");
  CHECK(refused({{{{1, -1, 1}}, 0}}) == "place_segments: segment 0 has a negative number");
  CHECK(place_segments({}, 0)->levels.empty());
}
