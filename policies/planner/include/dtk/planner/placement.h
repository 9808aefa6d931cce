// What each segment of a chain keeps: the choice that recomputes least and stays within bytes.
//
// A chain runs forward from the first segment to the last and backward from the last to the first. A segment
// keeps its bytes from its forward pass to the end of its own backward pass. So while segment i runs
// backward, what is alive is what all segments up to i keep, what i works with, and what no choice changes:
//
//   bytes(i) = others(i) + sum of kept(j) for j <= i + working(i)
//
// Bytes are counted ones (of planned runs); nothing here knows what a segment is.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace dtk::planner {

/// One way to run a segment.
struct SegmentLevel {
  int64_t kept_bytes = 0;     // from its forward pass to the end of its backward pass
  int64_t working_bytes = 0;  // beside those, while its backward pass runs: what it recomputes
  int64_t flops = 0;          // of what it recomputes
};

/// A segment, with at least one level.
struct SegmentChoices {
  std::vector<SegmentLevel> levels;
  int64_t other_bytes = 0;  // alive while its backward pass runs, whatever is chosen
};

struct Placement {
  std::vector<size_t> levels;  // by segment: the index of its level
  int64_t peak_bytes = 0;      // the highest of bytes(i)
  int64_t flops = 0;
};

/// The placement with the fewest FLOPs whose peak is at most `budget_bytes`; among those with the fewest, one
/// with the lowest sum of kept bytes. Nothing if every one exceeds it. By dynamic programming over what the
/// segments so far keep and recompute: its time is the number of such pairs of which none is better than
/// another in both, few where segments are alike. Exact up to 20,000 pairs; of more, 20,000 go on, evenly by
/// kept bytes, so that a placement may miss the fewest FLOPs by what a 20,000th of the bytes buys at each
/// segment. Throws std::invalid_argument for a segment without levels or a negative number.
std::optional<Placement> place_segments(const std::vector<SegmentChoices>& chain, int64_t budget_bytes);

}  // namespace dtk::planner
