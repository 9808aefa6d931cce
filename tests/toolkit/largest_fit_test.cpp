#include <dtk/toolkit/largest_fit.h>

#include <algorithm>
#include <set>

#include "support/catch.h"

using dtk::largest_fit;
using dtk::LargestFit;

TEST_CASE("largest fit: every limit is found, with its neighbour, and nothing is asked twice") {
  for (int64_t limit = 0; limit <= 70; ++limit) {
    for (int64_t most = 1; most <= 70; ++most) {
      std::set<int64_t> asked;
      const LargestFit found = largest_fit(most, [&](int64_t n) {
        CHECK(n >= 1);
        CHECK(n <= most);
        CHECK(asked.insert(n).second);
        return n <= limit;
      });
      INFO(limit << " of " << most);
      REQUIRE(found.fitting == std::min(limit, most));
      REQUIRE(found.exceeding == (limit < most ? limit + 1 : 0));
    }
  }
}
