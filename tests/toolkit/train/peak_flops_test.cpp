#include "toolkit/train/peak_flops.h"

#include "support/catch.h"

using namespace dtk;

TEST_CASE("peaks are known by the driver's names of GPUs") {
  CHECK(peak_flops_of("NVIDIA H200") == 989e12);
  CHECK(peak_flops_of("NVIDIA H200 NVL") == 835e12);
  CHECK(peak_flops_of("NVIDIA GH200 480GB") == 989e12);
  CHECK(peak_flops_of("NVIDIA H100 80GB HBM3") == 989e12);
  CHECK(peak_flops_of("NVIDIA H100 PCIe") == 756e12);
  CHECK(peak_flops_of("NVIDIA H100 NVL") == 835e12);
  CHECK(peak_flops_of("NVIDIA A100-SXM4-80GB") == 312e12);
  CHECK(peak_flops_of("NVIDIA A100 80GB PCIe") == 312e12);
  CHECK(peak_flops_of("NVIDIA A10") == 125e12);
  CHECK(peak_flops_of("NVIDIA L4") == 121e12);
  CHECK(peak_flops_of("NVIDIA L40S") == 362e12);
  for (const char* name : {"", "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce GTX 1080", "H1000", "XH200"}) {
    INFO(name);
    CHECK_FALSE(peak_flops_of(name));
  }
}
