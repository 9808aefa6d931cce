#include <stdexcept>

#include "support/catch.h"
#include "toolkit/checkpoint/store.h"

namespace dtk {
namespace {

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("the newest complete checkpoints are kept, in whatever order they are given", "[retention]") {
  CHECK(steps_to_remove({{3, true}, {1, true}, {4, true}, {2, true}}, 2) == Steps{1, 2});
  CHECK(steps_to_remove({{3, true}, {1, true}, {4, true}, {2, true}}, 1) == Steps{1, 2, 3});
}

TEST_CASE("nothing is removed while there are no more than keep", "[retention]") {
  CHECK(steps_to_remove({}, 2).empty());
  CHECK(steps_to_remove({{1, true}}, 2).empty());
  CHECK(steps_to_remove({{1, true}, {2, true}}, 2).empty());
  CHECK(steps_to_remove({{1, true}, {2, true}}, 1'000'000).empty());
}

TEST_CASE("incomplete checkpoints are not counted as kept", "[retention]") {
  CHECK(steps_to_remove({{1, true}, {2, false}, {3, false}, {4, false}}, 1).empty());
  CHECK(steps_to_remove({{1, true}, {2, true}, {3, false}}, 1) == Steps{1});
  CHECK(steps_to_remove({{1, true}, {2, false}, {3, true}}, 2).empty());
}

TEST_CASE("incomplete checkpoints older than all kept ones go", "[retention]") {
  CHECK(steps_to_remove({{1, false}, {2, true}, {3, true}}, 2) == Steps{1});
}

TEST_CASE("without a complete checkpoint nothing is removed", "[retention]") {
  CHECK(steps_to_remove({{1, false}, {2, false}, {3, false}}, 1).empty());
}

TEST_CASE("keeping no checkpoint is refused", "[retention]") {
  CHECK_THROWS_AS(steps_to_remove({{1, true}}, 0), std::invalid_argument);
  CHECK_THROWS_WITH(steps_to_remove({{1, true}}, -1), "at least 1 checkpoint must be kept, not -1");
}

}  // namespace dtk
