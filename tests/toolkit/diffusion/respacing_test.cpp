// Which steps are kept: the original's, and what is refused.
#include "toolkit/diffusion/respacing.h"

#include <numeric>
#include <stdexcept>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/fixture.h"

using dtk::respaced_steps;
using Steps = std::vector<int64_t>;

namespace {

std::string error_in(const std::string& text, int64_t steps) {
  return dtk::test::error_text<std::invalid_argument>([&] { respaced_steps(text, steps); });
}

Steps as_steps(const at::Tensor& indices) {
  const int64_t* const first = indices.const_data_ptr<int64_t>();
  return {first, first + indices.numel()};
}

}  // namespace

TEST_CASE("respacing: the kept steps are the original's") {
  const dtk::test::Fixture golden = dtk::test::read_fixture("diffusion_golden");
  for (const std::string name : {"10", "250", "ddim50", "10_15_20"}) {
    INFO(name);
    const std::string text = name == "10_15_20" ? "10,15,20" : name;
    CHECK(respaced_steps(text, 1000) == as_steps(golden.at("respaced." + name + ".indices")));
  }
}

TEST_CASE("respacing: a half is rounded to the even step") {
  // A stride of 2.5: 0, 2.5, 5, 7.5, 10.
  CHECK(respaced_steps("5", 11) == Steps{0, 2, 5, 8, 10});
  // Sections of 4 and 3 steps: 0, 1.5, 3, then 4, 6.
  CHECK(respaced_steps("3,2", 7) == Steps{0, 2, 3, 4, 6});
}

TEST_CASE("respacing: a count gives as many steps, from the first to the last") {
  for (int64_t count = 2; count <= 1000; ++count) {
    INFO(count);
    const Steps kept = respaced_steps(std::to_string(count), 1000);
    REQUIRE(kept.size() == static_cast<size_t>(count));
    REQUIRE(kept.front() == 0);
    REQUIRE(kept.back() == 999);
  }
  Steps all(1000);
  std::iota(all.begin(), all.end(), 0);
  CHECK(respaced_steps("1000", 1000) == all);
  CHECK(respaced_steps("ddim1000", 1000) == all);
  CHECK(respaced_steps("1,1", 1000) == Steps{0, 500});
}

TEST_CASE("respacing: what is refused") {
  const std::string forms =
      "wanted: a number of steps (\"250\"), one for each of several equal sections (\"10,15,20\") or, for "
      "equal strides, \"ddim50\"";
  for (const std::string text : {"", "ddim", "ddim-5", "ddim 5", "0", "10,0,10", "10,", ",10", "10;20", "-3",
                                 "2.5", "ten", "DDIM50", "99999999999999999999"}) {
    INFO(text);
    CHECK(error_in(text, 1000) == forms);
  }
  CHECK(error_in("1001", 1000) == "the diffusion has 1000 steps, fewer than the 1001 asked of it");
  CHECK(error_in("ddim1001", 1000) == "the diffusion has 1000 steps, fewer than the 1001 asked of it");
  CHECK(error_in("10,334,10", 1000) == "section 2 of 3 has 333 steps, fewer than the 334 asked of it");
  CHECK(error_in("1,1,1", 2) == "section 3 of 3 has 0 steps, fewer than the 1 asked of it");
  CHECK(error_in("ddim300", 1000) ==
        "no whole stride through 1000 steps takes 300 of them; the nearest are ddim250 and ddim334");
  const std::string one = "that is one step, and a process needs at least two";
  CHECK(error_in("1", 1000) == one);
  CHECK(error_in("ddim1", 1000) == one);
}
