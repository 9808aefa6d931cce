#include <dtk/toolkit/largest_fit.h>

#include <algorithm>

namespace dtk {

LargestFit largest_fit(int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t good = 0, bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    bad = std::min(2 * bad, most + 1);
    if (good == most) break;
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return {good, bad <= most ? bad : 0};
}

}  // namespace dtk
