// The largest of the numbers 1, 2, 3, ... that fits.
#pragma once
#include <cstdint>
#include <functional>

namespace dtk {

struct LargestFit {
  int64_t fitting = 0;    // the largest; 0: not even 1 fits
  int64_t exceeding = 0;  // `fitting` + 1, seen not to fit; 0: `most` ended the search
};

/// Doubles until one does not fit or `most` is passed, then bisects. Asks `fits` of no number twice. What is
/// larger than a number that does not fit must not fit either.
LargestFit largest_fit(int64_t most, const std::function<bool(int64_t)>& fits);

/// The same where what a number takes is known also if it is too much: goes where a straight line through the
/// last two numbers meets `limit`, every third time halfway. `bytes_of` must not fall.
LargestFit largest_within(int64_t most, int64_t limit, const std::function<int64_t(int64_t)>& bytes_of);

}  // namespace dtk
