#include "toolkit/families/dit/classes.h"

#include "support/catch.h"

using dtk::dit::ClassChoice;
using Labels = std::vector<int64_t>;
using Names = std::vector<std::string>;

TEST_CASE("classes: by number, range, name and all") {
  const Names animals = {"bird", "cat", "dog", "0-1"};
  CHECK(ClassChoice("2", 4).labels({}) == Labels{2});
  CHECK(ClassChoice("1-3, 0", 4).labels({}) == Labels{1, 2, 3, 0});
  CHECK(ClassChoice("all", 4).labels({}) == Labels{0, 1, 2, 3});
  CHECK(ClassChoice("dog,bird,1", 4).labels(animals) == Labels{2, 0, 1});
  CHECK(ClassChoice("0-1", 4).labels(animals) == Labels{0, 1});  // as count() says, which knows no names
  CHECK(ClassChoice("3,all", 4).labels({"a", "b", "3", "all"}) == Labels{2, 0, 1, 2, 3});
  CHECK(ClassChoice(2).labels({"1", "0"}) == Labels{0, 1});
  CHECK(ClassChoice(2).count() == 2);
  CHECK(ClassChoice("9", 4).labels({"7", "8", "9"}) == Labels{2});
  CHECK(ClassChoice("7,all", 3).labels({"7", "8", "9"}) == Labels{0, 0, 1, 2});
}

TEST_CASE("classes: how many need no names") {
  CHECK(ClassChoice("dog,bird,1,0-2", 4).count() == 6);
  CHECK(ClassChoice("all,3", 4).count() == 5);
}

TEST_CASE("classes: what is none is said with what is") {
  CHECK_THROWS_WITH(ClassChoice("", 4),
                    "an entry is empty; allowed: names, numbers, ranges such as 0-4, and all");
  CHECK_THROWS_WITH(ClassChoice("1, ,2", 4),
                    "an entry is empty; allowed: names, numbers, ranges such as 0-4, and all");
  CHECK_THROWS_WITH(ClassChoice("4", 4).labels({}), "4 is no class of this model; allowed: 0 to 3");
  CHECK_THROWS_WITH(ClassChoice("3-1", 4).labels({}), "3-1 is no class of this model; allowed: 0 to 3");
  CHECK_THROWS_WITH(ClassChoice("2-4", 4).labels({}), "2-4 is no class of this model; allowed: 0 to 3");
  CHECK_THROWS_WITH(ClassChoice("99999999999999999999", 4).labels({}),
                    "99999999999999999999 is no class of this model; allowed: 0 to 3");
  CHECK_THROWS_WITH(ClassChoice("cat", 4).labels({}),
                    "no class is called \"cat\"; no names of classes are known here; use their numbers");
  CHECK_THROWS_WITH(ClassChoice("dgo", 4).labels({"bird", "cat", "dog"}),
                    "no class is called \"dgo\"; did you mean dog?");
  CHECK_THROWS_WITH(ClassChoice("zebra", 4).labels({"bird", "cat", "dog"}),
                    "no class is called \"zebra\"; allowed: bird, cat and dog");
  CHECK_THROWS_WITH(ClassChoice("zebra", 9).labels({"aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"}),
                    "no class is called \"zebra\"; allowed: aa, bb, cc, dd, ee, ff and 2 more");
}
