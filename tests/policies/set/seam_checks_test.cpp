// What a program forgets of the seam and of the policies' calls is found out.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/policy_set.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/policies/small_subject.h"

using namespace dtk::policies;
using dtk::test::all_on;
using dtk::test::error_text;
using dtk::test::small_subject;

TEST_CASE("a training pass outside of the forward scope is refused where a policy would miss it") {
  Seam seam;
  PolicyOptions options = all_on();
  const auto run = [&] { seam.run("blocks.0", [](Tensors&& in) { return std::move(in); }, {at::ones({2})}); };
  SECTION("bf16 would not be on") {
    PolicySet policies(options, small_subject(), seam);
    CHECK(error_text<PolicyError>(run) ==
          "the module blocks.0 runs outside of PolicySet::forward_scope(), which policies.precision needs; "
          "hold the scope during the forward pass, or switch that policy off");
    auto scope = policies.forward_scope();
    CHECK_NOTHROW(run());
    scope.reset();
    CHECK_THROWS_AS(run(), PolicyError);
    const at::NoGradGuard evaluation;
    CHECK_NOTHROW(run());
  }
  SECTION("attention that was asked for would not be looked after") {
    options.precision.enabled = Enabled::off;
    const PolicySet policies(options, small_subject(), seam);
    CHECK_THAT(error_text<PolicyError>(run), Catch::Contains("which policies.attention needs"));
  }
  SECTION("without a policy that needs it nothing is missed") {
    options.precision.enabled = Enabled::off;
    options.attention.enabled = Enabled::by_default;
    const PolicySet policies(options, small_subject(), seam);
    CHECK_NOTHROW(run());
  }
}

TEST_CASE("a policy that was asked for and met nothing in the forward pass is refused") {
  Seam seam;
  PolicyOptions options = PolicyOptions::all_off();
  const bool in_scope = GENERATE(false, true);
  CAPTURE(in_scope);
  SECTION("precision: no scope") {
    options.precision.enabled = Enabled::on;
    PolicySet policies(options, small_subject(), seam);
    if (in_scope) policies.forward_scope().reset();
    if (in_scope) {
      CHECK_NOTHROW(policies.before_step());
      CHECK(policies.reports()[0].active);
    } else {
      CHECK(
          error_text<PolicyError>([&] { policies.before_step(); }) ==
          "policies.precision.enabled = true, but no forward pass ran within forward_scope(), so it has no "
          "effect; hold the scope during the forward pass, or set policies.precision.enabled = \"default\"");
      CHECK_FALSE(policies.reports()[0].active);
    }
  }
  SECTION("checkpoint: no module, or one that keeps nothing") {
    options.checkpoint.enabled = Enabled::on;
    options.checkpoint.targets = {"blocks.*"};
    PolicySet policies(options, small_subject(), seam);
    CHECK(policies.reports()[4].active);
    auto scope = policies.forward_scope();
    const at::Tensor x = at::ones({2}).requires_grad_(true);
    if (in_scope) seam.run("blocks.0", [](Tensors&& in) { return Tensors{in[0] + 1}; }, {x});
    const std::string why = in_scope ? "backward needs no more of blocks.0 to blocks.1 than what is there "
                                       "anyway: inputs and parameters"
                                     : "no forward pass has run blocks.0 to blocks.1 through the seam";
    CHECK(error_text<PolicyError>([&] { policies.before_step(); }) ==
          "policies.checkpoint.enabled = true, but " + why +
              ", so it has no effect; name other modules in policies.checkpoint.targets, or set "
              "policies.checkpoint.enabled = \"default\"");
    CHECK_FALSE(policies.reports()[4].active);
    CHECK(policies.reports()[4].reason == "without effect: " + why);
    // What it keeps instead: the input of a lookup, and a weight that is there anyway.
    const at::Tensor weight = at::ones({3, 2}).requires_grad_(true);
    seam.run("blocks.0", [&](Tensors&& in) { return Tensors{at::embedding(weight, in[0] + 1)}; },
             {at::zeros({2}, at::kLong)});
    seam.run("blocks.0", [&](Tensors&& in) { return Tensors{at::linear(in[0], weight)}; },
             {at::ones({5, 2})});
    CHECK_THROWS_AS(policies.before_step(), PolicyError);
    seam.run("blocks.0", [](Tensors&& in) { return Tensors{in[0].exp()}; }, {x});
    CHECK_NOTHROW(policies.before_step());
    CHECK(policies.reports()[4].active);
  }
}

TEST_CASE("a module that the policies were not told of is refused") {
  Seam seam, seam_without_paths;
  PolicySet policies(all_on(), small_subject(), seam);
  const auto scope = policies.forward_scope();
  const ModuleFn fn = [](Tensors&& in) { return std::move(in); };
  CHECK(error_text<PolicyError>([&] { seam.run("block.1", fn, {at::ones({2})}); }) ==
        "the module block.1 runs through the seam, but the policies were not told of it; add it to "
        "Subject.paths (near: blocks.1, blocks.0, final_layer)");
  const PolicySet none(PolicyOptions::all_off(), {at::kCPU, small_subject().parameters, {}},
                       seam_without_paths);
  CHECK(error_text<PolicyError>([&] { seam_without_paths.run("stem", fn, {at::ones({2})}); }) ==
        "the module stem runs through the seam, but the policies were not told of it; add it to "
        "Subject.paths, which is empty");
}

TEST_CASE("an EMA that hears of no step is reported as without effect") {
  Seam seam;
  PolicyOptions options = PolicyOptions::all_off();
  options.precision.enabled = Enabled::on;
  options.ema = all_on().ema;
  PolicySet policies(options, small_subject(), seam);
  const auto ema = [&] { return policies.reports()[3]; };
  policies.forward_scope().reset();
  CHECK(ema().active);  // before the first step nothing is known
  policies.forward_scope().reset();
  CHECK_FALSE(ema().active);
  CHECK(ema().reason ==
        "without effect: the policies were told of no optimizer step; call step(optimizer), or before_step() "
        "and after_step() around it");
  CHECK(policies.reports()[0].active);
  policies.before_step();
  policies.after_step();
  CHECK(ema().active);
}
