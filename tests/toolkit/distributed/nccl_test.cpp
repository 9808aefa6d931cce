// The library of NCCL's group. On a GPU a group of one rank; elsewhere that the library finds all it needs in
// a process with libtorch_cuda, up to LibTorch's own word that there is no GPU.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <dtk/policies/collectives.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "toolkit/core/errors.h"
#include "toolkit/device/device.h"
#include "toolkit/distributed/nccl_group.h"

using namespace dtk;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

TEST_CASE("NCCL: a group of one rank exchanges with itself, and without a GPU there is none", "[device]") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  if (open_device("auto").is_cpu()) {
    REQUIRE(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr);
    CHECK_THROWS_WITH(
        open_nccl_group(DTK_NCCL, store, 0, 1, 10s),
        Contains("several ranks train on GPUs by NCCL, and " DTK_NCCL " makes no group of it: ") &&
            Contains("no GPUs found") && Contains("or use --device cpu"));
    return;
  }
  policies::Collectives group(open_nccl_group(DTK_NCCL, store, 0, 1, 60s));
  CHECK(group.ranks() == 1);
  const at::Tensor own = at::arange(6, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
  at::Tensor from = own.clone(), into = at::zeros_like(own), values = own.clone();
  auto pending = group.begin_all_to_all(into, from, {6}, {6}, "in a test");
  group.wait_for(pending, "in a test");
  group.share_parts(from, {6}, "in a test");
  group.add_up(values, "in a test");
  for (const at::Tensor& one : {into, from, values}) CHECK(at::equal(one, own));
  CHECK(group.sent().count("alltoall") == 0);
}

TEST_CASE("NCCL: a library that is not there is named") {
  CHECK_THROWS_WITH(
      open_nccl_group("/nowhere/libdtk_nccl.so", c10::make_intrusive<c10d::HashStore>(), 0, 2, 1s),
      Contains("/nowhere/libdtk_nccl.so makes no group of it: "));
}
