#include <dtk/planner/placement.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace dtk::planner {
namespace {

// A choice for the segments so far. What comes later depends on the kept bytes alone.
struct Partial {
  int64_t kept_bytes = 0;
  int64_t flops = 0;
  size_t level = 0;   // of the last segment
  size_t before = 0;  // the index of what it continues
};
using Front = std::vector<Partial>;  // kept bytes ascend, FLOPs descend: none is better than another in both

constexpr size_t kMaxPartials = 20'000;

void check(const std::vector<SegmentChoices>& chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const std::string segment = "segment " + std::to_string(i);
    if (chain[i].levels.empty()) throw std::invalid_argument("place_segments: " + segment + " has no level");
    bool negative = chain[i].other_bytes < 0;
    for (const SegmentLevel& level : chain[i].levels)
      negative |= level.kept_bytes < 0 || level.working_bytes < 0 || level.flops < 0;
    if (negative) throw std::invalid_argument("place_segments: " + segment + " has a negative number");
  }
}

// As many as can be kept, evenly by kept bytes: of each equal part of their range the one that recomputes
// least, and the first of all, which keeps least.
Front thinned(Front front) {
  if (front.size() <= kMaxPartials) return front;
  const auto parts = static_cast<double>(kMaxPartials - 1);
  const int64_t lowest = front.front().kept_bytes;
  const auto range = static_cast<double>(front.back().kept_bytes - lowest);
  const auto part_of = [&](const Partial& one) {
    return std::floor(static_cast<double>(one.kept_bytes - lowest) / range * parts);
  };
  Front fewer = {front.front()};
  for (size_t i = 1; i < front.size(); ++i) {
    const bool last_of_part = i + 1 == front.size() || part_of(front[i]) < part_of(front[i + 1]);
    if (last_of_part) fewer.push_back(front[i]);
  }
  return fewer;
}

Front without_worse(Front all) {
  // Stable: of equals the one that is recomputed earlier in the chain.
  std::stable_sort(all.begin(), all.end(), [](const Partial& a, const Partial& b) {
    return a.kept_bytes != b.kept_bytes ? a.kept_bytes < b.kept_bytes : a.flops < b.flops;
  });
  Front front;
  for (const Partial& one : all) {
    if (front.empty() || one.flops < front.back().flops) front.push_back(one);
  }
  return thinned(std::move(front));
}

Front extended(const Front& before, const SegmentChoices& segment, int64_t budget) {
  Front all;
  for (size_t b = 0; b < before.size(); ++b) {
    for (size_t l = 0; l < segment.levels.size(); ++l) {
      const SegmentLevel& level = segment.levels[l];
      const int64_t kept = before[b].kept_bytes + level.kept_bytes;
      if (segment.other_bytes + kept + level.working_bytes > budget) continue;
      all.push_back({kept, before[b].flops + level.flops, l, b});
    }
  }
  return without_worse(std::move(all));
}

int64_t peak_of(const std::vector<SegmentChoices>& chain, const std::vector<size_t>& levels) {
  int64_t kept = 0, peak = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    const SegmentLevel& level = chain[i].levels[levels[i]];
    kept += level.kept_bytes;
    peak = std::max(peak, chain[i].other_bytes + kept + level.working_bytes);
  }
  return peak;
}

}  // namespace

std::optional<Placement> place_segments(const std::vector<SegmentChoices>& chain, int64_t budget_bytes) {
  check(chain);
  std::vector<Front> fronts = {{Partial{}}};
  for (const SegmentChoices& segment : chain)
    fronts.push_back(extended(fronts.back(), segment, budget_bytes));
  if (fronts.back().empty()) return std::nullopt;
  Placement best;
  best.levels.resize(chain.size());
  size_t at = fronts.back().size() - 1;  // FLOPs descend
  best.flops = fronts.back()[at].flops;
  for (size_t i = chain.size(); i > 0; --i) {
    best.levels[i - 1] = fronts[i][at].level;
    at = fronts[i][at].before;
  }
  best.peak_bytes = peak_of(chain, best.levels);
  return best;
}

}  // namespace dtk::planner
