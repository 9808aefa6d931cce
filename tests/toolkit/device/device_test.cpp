// What of a device can be said without one.
#include "toolkit/device/device.h"

#include "support/catch.h"
#include "toolkit/core/errors.h"

using namespace dtk;

TEST_CASE("device: a budget is the fraction of the device that LibTorch's allocator may reserve") {
  CHECK(with_limit("", ByteSize{20'000'000'000}, 80'000'000'000) ==
        "per_process_memory_fraction:0.250000000");
  CHECK(with_limit("", ByteSize{0, 80}, 80'000'000'000) == "per_process_memory_fraction:0.800000000");
  // More than there is would be refused as a setting.
  CHECK(with_limit("", ByteSize{90}, 80) == "per_process_memory_fraction:1.000000000");
  CHECK(with_limit("expandable_segments:True", ByteSize{1}, 2) ==
        "expandable_segments:True,per_process_memory_fraction:0.500000000");
}
