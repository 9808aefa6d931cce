#include "support/policies/compared_gradients.h"

#include <cmath>

#include "support/catch.h"

using dtk::bench::compared;
using dtk::bench::Gradients;

TEST_CASE("gradients are bit-equal, some ulps apart, or of other numerics") {
  const Gradients reference = {{1.0F, -2.0F}, {0.0F, 3.0F}};
  CHECK(compared(reference, reference) == "bit-equal");
  CHECK(compared({{1.0F, -2.0F}, {-0.0F, 3.0F}}, reference) == "within 0 ulp");
  CHECK(compared({{std::nextafter(1.0F, 2.0F), -2.0F}, {0.0F, 3.0F}}, reference) == "within 1 ulp");
  // Through zero, the smallest float of either sign.
  const float smallest = std::nextafter(0.0F, 1.0F);
  CHECK(compared({{-smallest}}, {{smallest}}) == "within 2 ulp");
  const float step = std::nextafter(1.0F, 2.0F) - 1.0F;
  CHECK(compared({{1.0F + 4096 * step}}, {{1.0F}}) == "within 4096 ulp");
  CHECK(compared({{1.0F + 4097 * step}}, {{1.0F}}) == "numerics changed, max relative error 4.9e-04");
  // The tensor that differs most counts: 0.5 of a norm of 5.
  CHECK(compared({{3.0F, 4.5F}, {100.0F}}, {{3.0F, 4.0F}, {100.1F}}) ==
        "numerics changed, max relative error 1.0e-01");
}
