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

TEST_CASE("device: each of several ranks takes the GPU of its number on its host") {
  CHECK(device_of_rank("cpu", 3, 8, false) == "cpu");
  CHECK(device_of_rank("auto", 0, 0, false) == "auto");  // the CPU
  CHECK(device_of_rank("cuda", 1, 0, false) == "cuda");  // which open_device() refuses
  CHECK(device_of_rank("auto", 5, 8, false) == "cuda:5");
  CHECK(device_of_rank("cuda", 0, 8, true) == "cuda:0");
  CHECK(device_of_rank("cuda", 0, 1, false) == "cuda:0");
  CHECK(device_of_rank("cuda", 5, 1, true) == "cuda:0");  // the launcher shows each its own
  for (const int64_t devices : {1, 2}) {
    CHECK_THROWS_WITH(
        device_of_rank("cuda", 2, devices, /*chosen=*/devices == 2),
        Catch::Matchers::Equals(
            "--device cuda: CUDA devices here: " + std::to_string(devices) +
            ", and this is rank 2 of this host, from 0, by LOCAL_RANK or else RANK; start no more "
            "ranks on a host than it has devices, set LOCAL_RANK, or use --device cpu"));
  }
  CHECK_THROWS_WITH(
      device_of_rank("cuda:1", 1, 2, false),
      Catch::Matchers::Equals("--device cuda:1: each of several ranks takes the GPU of its number on "
                              "its host; use --device cuda"));
}
