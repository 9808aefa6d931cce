#include "toolkit/core/largest_fit.h"

#include <algorithm>
#include <optional>

namespace dtk {
namespace {

struct Point {
  int64_t number, bytes;
};

// Of the line through two points: the last number within `limit`, at least `first` and at most `last`.
int64_t where_it_meets(int64_t limit, const Point& a, const Point& b, int64_t first, int64_t last) {
  const auto rise = static_cast<double>(b.bytes - a.bytes), run = static_cast<double>(b.number - a.number);
  if (!(rise > 0)) return last;
  const double more = static_cast<double>(limit - a.bytes) / rise * run;
  const int64_t room = last - a.number;
  if (more >= static_cast<double>(room)) return last;
  return std::max(first, a.number + static_cast<int64_t>(more));
}

}  // namespace

LargestFit largest_within(int64_t most, int64_t limit, const std::function<int64_t(int64_t)>& bytes_of) {
  constexpr int64_t kMaxGrowth = 64;  // what does not grow at first says little of what follows
  std::optional<Point> before, good, bad;
  for (int64_t next = 1, step = 1;; ++step) {
    const Point seen = {next, bytes_of(next)};
    if (seen.bytes > limit) {
      bad = seen;
    } else {
      before = good;
      good = seen;
    }
    if (!good) return {0, 1};
    const int64_t last = bad ? bad->number - 1 : most;
    if (good->number == last) return {last, bad ? bad->number : 0};
    const int64_t above = good->number + 1;
    if (!bad) {
      const int64_t furthest = good->number > last / kMaxGrowth ? last : kMaxGrowth * good->number;
      next = before ? where_it_meets(limit, *before, *good, above, furthest) : above;
    } else if (step % 3 == 0) {
      next = good->number + (bad->number - good->number) / 2;
    } else {
      next = where_it_meets(limit, *good, *bad, above, last);
    }
  }
}

}  // namespace dtk
