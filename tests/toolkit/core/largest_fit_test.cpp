#include "toolkit/core/largest_fit.h"

#include <algorithm>
#include <set>

#include "support/catch.h"

using dtk::largest_within;
using dtk::LargestFit;

TEST_CASE(
    "largest within: every limit of any curve that does not fall is found, and nothing is asked twice") {
  const std::function<int64_t(int64_t)> curves[] = {
      [](int64_t n) { return 7 * n; },
      [](int64_t n) { return 1000 + 7 * n; },
      [](int64_t n) {
        return std::max<int64_t>(300, 10 * n);
      },  // flat at first, as where weights are the peak
      [](int64_t n) { return std::max(40 * n, 90 * n - 900); },
      [](int64_t n) { return n * n; },
      [](int64_t n) { return (n + 15) / 16 * 100; },  // in steps
      [](int64_t) { return int64_t{50}; },
  };
  for (const auto& curve : curves) {
    for (int64_t most = 1; most <= 70; most += 3) {
      for (int64_t limit = 0; limit <= 5000; limit += 13) {
        std::set<int64_t> asked;
        const LargestFit found = largest_within(most, limit, [&](int64_t n) {
          CHECK(n >= 1);
          CHECK(n <= most);
          CHECK(asked.insert(n).second);
          return curve(n);
        });
        int64_t largest = 0;
        while (largest < most && curve(largest + 1) <= limit) ++largest;
        INFO(limit << " of " << most);
        REQUIRE(found.fitting == largest);
        REQUIRE(found.exceeding == (largest < most ? largest + 1 : 0));
      }
    }
  }
}

TEST_CASE("largest within: on a line five numbers are enough, however far it goes") {
  int asked = 0;
  const LargestFit found = largest_within(int64_t{1} << 32, 100'000'000'000'000, [&](int64_t n) {
    ++asked;
    return 11'000'000'000 + 24'809'000 * n;
  });
  CHECK(found.fitting == (100'000'000'000'000 - 11'000'000'000) / 24'809'000);
  CHECK(found.exceeding == found.fitting + 1);
  CHECK(asked <= 7);
}
