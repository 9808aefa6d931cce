// The largest of the numbers 1, 2, 3, ... that fits.
#pragma once
#include <cstdint>
#include <functional>

namespace dtk {

struct LargestFit {
  int64_t fitting = 0;    // the largest; 0: not even 1 fits
  int64_t exceeding = 0;  // `fitting` + 1, seen not to fit; 0: `most` ended the search
};

/// Goes where a straight line through the last two numbers meets `limit`, every third time halfway. Asks
/// `bytes_of`, which must not fall, of no number twice.
LargestFit largest_within(int64_t most, int64_t limit, const std::function<int64_t(int64_t)>& bytes_of);

}  // namespace dtk
