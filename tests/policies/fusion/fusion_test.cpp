// The fusion policy: which passes take fused operators, what it reports, and what it refuses. Its bytes
// beside the other policies' are in tests/policies/set/savings_test.cpp.
#include <ATen/core/grad_mode.h>
#include <dtk/policies/fusion.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/report.h>
#include <torch/library.h>

#include "support/catch.h"
#include "support/error_text.h"

using namespace dtk::policies;
using dtk::test::error_text;

namespace {

constexpr const char* kHere = "fusion_test::on_the_cpu";
constexpr const char* kNowhere = "fusion_test::without_kernel";

at::Tensor itself(const at::Tensor& x) {
  return x;
}

TORCH_LIBRARY(fusion_test, library) {
  library.def("on_the_cpu(Tensor x) -> Tensor");
  library.def("without_kernel(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(fusion_test, CPU, library) {
  library.impl("on_the_cpu", &itself);
}

struct Put {
  explicit Put(Enabled enabled, c10::Device device = at::kCPU, bool cuda = false)
      : policy({.enabled = enabled, .cuda = cuda}, device) {
    policy.apply(seam);
  }
  FusionPolicy policy;
  Seam seam;
};

}  // namespace

TEST_CASE("a training pass takes the fused operators that have a kernel; without the policy none does") {
  CHECK_FALSE(Seam().fuses(kHere));
  Put put(Enabled::by_default);
  CHECK(put.seam.fuses(kHere));
  CHECK_FALSE(put.seam.fuses(kNowhere));
  CHECK_FALSE(put.seam.fuses("fusion_test::unknown"));
  const at::NoGradGuard without;
  CHECK_FALSE(put.seam.fuses(kHere));
}

TEST_CASE("its report names what runs fused, and what has no kernel") {
  Put put(Enabled::by_default);
  CHECK(put.policy.report().active);
  CHECK(put.policy.report().reason == "fused operators where modules have them");
  put.seam.fuses(kHere);
  CHECK(put.policy.report().reason == "fused operators: fusion_test::on_the_cpu");
  put.seam.fuses(kNowhere);
  put.policy.before_step();
  CHECK(put.policy.report().active);
  CHECK(put.policy.report().reason ==
        "fused operators: fusion_test::on_the_cpu; no kernel on cpu for fusion_test::without_kernel");
  Put missing(Enabled::by_default);
  missing.seam.fuses(kNowhere);
  missing.policy.before_step();
  CHECK_FALSE(missing.policy.report().active);
  CHECK(missing.policy.report().reason ==
        "LibTorch's operators; no kernel on cpu for fusion_test::without_kernel");
}

TEST_CASE("a default without effect is a line in the report, a policy that was asked for an error") {
  Put by_default(Enabled::by_default), asked(Enabled::on);
  by_default.policy.before_step();
  CHECK_FALSE(by_default.policy.report().active);
  CHECK(by_default.policy.report().reason == "no module of this model has a fused form");
  CHECK(error_text<PolicyError>([&] { asked.policy.before_step(); }) ==
        "policies.fusion.enabled = true has no effect: no module of this model has a fused form; set "
        "policies.fusion.enabled = \"default\"");
  CHECK(error_text<PolicyError>([&] { asked.seam.fuses(kNowhere); }) ==
        "policies.fusion.enabled = true, but fusion_test::without_kernel has no kernel on cpu; set "
        "policies.fusion.enabled = \"default\", which runs LibTorch's operators there and says so");
  CHECK(asked.seam.fuses(kHere));
  asked.policy.before_step();
}

TEST_CASE("on CUDA operators run one after the other unless their kernels there are asked for") {
  const c10::Device cuda(at::kCUDA, 0);
  Put by_default(Enabled::by_default, cuda);
  CHECK_FALSE(by_default.seam.fuses(kHere));
  CHECK_FALSE(by_default.policy.report().active);
  CHECK(by_default.policy.report().reason ==
        "LibTorch's operators: the fused ones' kernels have not run on a GPU; policies.fusion.cuda = true "
        "takes "
        "them");
  CHECK(error_text<PolicyError>([&] { Put(Enabled::on, cuda); }) ==
        "policies.fusion.enabled = true has no effect on CUDA, where the fused operators' kernels have not "
        "been run "
        "and are taken only if asked for; set policies.fusion.cuda = true");
  Put asked(Enabled::by_default, cuda, /*cuda=*/true);
  CHECK_FALSE(asked.seam.fuses(kHere));  // this program has no kernel for CUDA
  asked.policy.before_step();
  CHECK(asked.policy.report().reason ==
        "LibTorch's operators; no kernel on cuda:0 for fusion_test::on_the_cpu");
}
