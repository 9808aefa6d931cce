// The checkpointing policy: which modules become segments, and what that does to a DiT. Tests tagged
// [device] run on any; the ledger, which knows the module path of every byte, sees the CPU only.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/dit.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/error_text.h"
#include "support/policies/small_dit.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::models::Dit;
using dtk::test::DeviceMemory;
using dtk::test::on_cpu;
using dtk::test::same_bits;
using dtk::test::test_device;

namespace {

using Segments = std::vector<std::vector<std::string>>;

const std::vector<std::string> kPaths = {"x_embedder", "blocks.0", "blocks.1",   "blocks.2",
                                         "blocks.3",   "blocks.4", "final_layer"};

CheckpointOptions with(int64_t every, int64_t segment) {
  CheckpointOptions options;
  options.targets = {"blocks.*"};
  options.every = every;
  options.segment = segment;
  return options;
}

Dit make_dit() {
  return dtk::test::small_dit(/*depth=*/3, /*hidden=*/32, /*patch=*/2, /*mlp_dropout=*/0.1, test_device());
}

void put_in(Dit& dit, CheckpointPolicy* policy) {
  Seam seam;
  seam.run = run_with_module_path();
  if (policy != nullptr) policy->apply(seam);
  dit.seam.run = seam.run;
}

struct Outcome {
  std::vector<at::Tensor> gradients;
  std::map<std::string, int64_t> saved;  // after forward, by module path; of the CPU's ledger only
  int64_t kept = 0;                      // alive after forward that was not before
};

void check_same_gradients(const Outcome& a, const Outcome& b) {
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) CHECK_VALUES(same_bits(a.gradients[i], b.gradients[i]));
}

Outcome train(const Dit& dit) {
  for (const auto& [name, parameter] : dit.parameters()) parameter.mutable_grad().reset();
  at::manual_seed(5);
  const at::Tensor x = at::randn({4, 1, 8, 8}).to(test_device()),
                   t = (at::rand({4}) * 1000).to(test_device()), y = at::arange(4).to(test_device());
  for (const at::Tensor& tensor : {x, t, y}) claim(tensor, Category::data, "batch");
  Outcome outcome;
  SavedTensorScope ledger(saved_tensor_ledger());
  const int64_t before = DeviceMemory::live();
  const at::Tensor loss = dit.forward(x, t, y, /*training=*/true).pow(2).sum();
  outcome.kept = DeviceMemory::live() - before;
  const auto items = cpu_accounts().live().items();
  if (on_cpu() && items.count(Category::saved) > 0) outcome.saved = items.at(Category::saved);
  torch::autograd::backward({loss}, {});
  for (const auto& [name, parameter] : dit.parameters()) {
    if (parameter.requires_grad()) outcome.gradients.push_back(parameter.grad());
  }
  return outcome;
}

int64_t saved_in_blocks(const Outcome& outcome) {
  int64_t bytes = 0;
  for (const auto& [path, saved] : outcome.saved) bytes += path.starts_with("blocks.") ? saved : 0;
  return bytes;
}

}  // namespace

TEST_CASE("a star stands for exactly one component") {
  CHECK(glob_matches("blocks.*", "blocks.3"));
  CHECK(glob_matches("*", "final_layer"));
  CHECK(glob_matches("encoder.*.mlp", "encoder.7.mlp"));
  CHECK_FALSE(glob_matches("blocks.*", "blocks"));
  CHECK_FALSE(glob_matches("blocks.*", "blocks.3.attn"));
  CHECK_FALSE(glob_matches("blocks.1", "blocks.11"));
}

TEST_CASE("targets, every and segment choose the segments") {
  const auto segments = [](CheckpointOptions options) {
    return CheckpointPolicy(options, kPaths).segments();
  };
  CHECK(segments(with(1, 1)) ==
        Segments{{"blocks.0"}, {"blocks.1"}, {"blocks.2"}, {"blocks.3"}, {"blocks.4"}});
  CHECK(segments(with(2, 1)) == Segments{{"blocks.0"}, {"blocks.2"}, {"blocks.4"}});
  CHECK(segments(with(1, 2)) == Segments{{"blocks.0", "blocks.1"}, {"blocks.2", "blocks.3"}, {"blocks.4"}});
  CheckpointOptions options;
  options.targets = {"blocks.1", "blocks.*", "final_layer"};  // matched twice counts once
  CHECK(segments(options).size() == 6);
  options.keep = KeepWord::all;
  CHECK(segments(options).empty());
}

TEST_CASE("what cannot have an effect is refused with what to change") {
  const auto error = [](const CheckpointOptions& options) {
    try {
      CheckpointPolicy(options, kPaths);
    } catch (const PolicyError& refused) {
      return std::string(refused.what());
    }
    return std::string("accepted");
  };
  CheckpointOptions options;
  options.targets = {"block.*"};
  CHECK(error(options) ==
        "policies.checkpoint.targets: \"block.*\" matches no module of this model; near: blocks.0, "
        "blocks.1, blocks.2");
  CHECK(error(with(6, 1)) ==
        "policies.checkpoint.every = 6 is out of range for 5 matching modules; allowed: [1, 5]");
  CHECK(error(with(1, 0)) ==
        "policies.checkpoint.segment = 0 is out of range for 5 matching modules; allowed: [1, 5]");
  CHECK(error(with(2, 2)) ==
        "policies.checkpoint.segment = 2 has no effect: with policies.checkpoint.every = 2 no two of the "
        "chosen modules follow each other; set one of the two to 1");
  options = with(1, 2);
  options.targets = {"blocks.0", "blocks.2"};
  CHECK(error(options) ==
        "policies.checkpoint.segment = 2 has no effect: with policies.checkpoint.every = 1 no two of the "
        "chosen modules follow each other; set segment to 1, or choose modules that do");
  const auto kept = [&](std::vector<std::string> results) {
    CheckpointOptions one = with(1, 1);
    one.keep = std::move(results);
    return error(one);
  };
  CHECK(kept({"attn_out", "attn_out"}) == "policies.checkpoint.keep holds \"attn_out\" twice; take one out");
  CHECK(kept({"attn_out", ""}) == "policies.checkpoint.keep holds an empty name; take it out");
  CHECK(kept({"block", "attn_out"}) ==
        "policies.checkpoint.keep: \"block\" is not the name of a result; write it alone: "
        "policies.checkpoint.keep = \"block\"");
  options = with(1, 2);
  options.targets = {"blocks.*", "blocks.*.mlp"};
  CHECK(dtk::test::error_text<PolicyError>([&] {
          CheckpointPolicy(options, {"blocks.0", "blocks.0.mlp", "blocks.1"});
        }) ==
        "policies.checkpoint.targets overlap: blocks.0.mlp runs within blocks.0, so "
        "policies.checkpoint.segment "
        "= 2 cannot join them in one segment; name modules of one level, or set policies.checkpoint.segment "
        "= 1, which nests them");
  options = with(1, 1);
  options.keep = KeepWord::automatic;
  CHECK(error(options) ==
        "policies.checkpoint.keep = \"auto\" leaves the choice to a planner, as dit-plan and dit-train do "
        "under "
        "memory.budget; give the policy what was chosen: keep = \"block\" with the modules to recompute "
        "as targets, or keep = \"all\"");
  options.keep = std::vector<std::string>{};
  CHECK(error(options) ==
        "policies.checkpoint.keep is an empty list; name results, such as [\"fc2_out\"] or "
        "[\"aten::addmm\"], or set policies.checkpoint.keep = \"block\"");
  options.keep = KeepWord::all;
  CHECK(error(options) == "accepted");
  options.enabled = Enabled::on;
  CHECK(error(options) ==
        "policies.checkpoint: asked for, but keep = \"all\" keeps every tensor, so it has no effect; set "
        "policies.checkpoint.keep = \"block\", or set policies.checkpoint.enabled = false");
}

TEST_CASE("a checkpointed DiT keeps each block's input and the conditioning; gradients are bit-equal",
          "[device]") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  Dit dit = make_dit();
  put_in(dit, nullptr);
  train(dit);  // what libraries take for good at their first call is there from now on
  const Outcome plain = train(dit), again = train(dit);
  check_same_gradients(plain, again);

  CheckpointPolicy policy(with(1, 1), dit.paths());
  put_in(dit, &policy);
  const CheckpointCounts before = checkpoint_counts();
  const Outcome saved = train(dit);
  CHECK(checkpoint_counts().recomputes - before.recomputes == 3);
  check_same_gradients(plain, saved);

  // Per block x (4, 16, 32), and once c (4, 32), which all blocks and the final layer take.
  const int64_t x = 4 * 16 * 32 * 4, c = 4 * 32 * 4;
  if (on_cpu()) {
    CHECK(saved_in_blocks(plain) > 10 * x);
    CHECK(saved_in_blocks(saved) == 3 * x + c);
    CHECK(saved.saved.at("blocks.2") == x);
    CHECK(saved.saved.at("") == 4 * 64 * 4);  // the input of pow, (4, 1, 8, 8)
  }
  CHECK(plain.kept - saved.kept > 3 * 10 * x);
  CHECK(policy.report().active);
  CHECK(policy.report().reason == "recomputes 3 modules in 3 segments, from blocks.0 to blocks.2");
}

TEST_CASE("segments of two blocks keep fewer inputs and the same gradients", "[device]") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  Dit dit = make_dit();
  put_in(dit, nullptr);
  const Outcome plain = train(dit);
  CheckpointPolicy single(with(1, 1), dit.paths());
  put_in(dit, &single);
  const Outcome one_each = train(dit);
  CheckpointPolicy policy(with(1, 2), dit.paths());
  put_in(dit, &policy);
  const Outcome saved = train(dit);
  check_same_gradients(plain, saved);
  const int64_t x = 4 * 16 * 32 * 4;
  if (on_cpu()) CHECK(saved_in_blocks(saved) == 2 * x + 4 * 32 * 4);
  CHECK(one_each.kept - saved.kept == x);
}

TEST_CASE("in a segment of two a change in place between its blocks is refused with the block's name") {
  SavedTensorEngineGuard engine;
  const auto gradient = [](int64_t segment, bool change) {
    CheckpointPolicy policy(with(1, segment), {"blocks.0", "blocks.1"});
    Seam seam;
    policy.apply(seam);
    const at::Tensor w = at::full({4}, 0.5).requires_grad_(true);
    const ModuleFn block = [w](Tensors&& in) { return Tensors{in[0] * w}; };
    Tensors x = seam.run("blocks.0", block, {at::ones({4})});
    if (change) x[0].add_(1);
    x = seam.run("blocks.1", block, std::move(x));
    torch::autograd::backward({x[0].sum()}, {});
    return w.grad();
  };
  CHECK(at::equal(gradient(2, false), at::full({4}, 1.0)));
  CHECK(at::equal(gradient(1, true), at::full({4}, 2.0)));  // of w² + w
  CHECK_THROWS_WITH(
      gradient(2, true),
      Catch::Contains("checkpoint blocks.1: its input [4], which blocks.0 returned, was changed"));
}

TEST_CASE("blocks of a segment that are left out, run twice or hold segments change no gradient") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  const at::Tensor w = at::full({4}, 0.5).requires_grad_(true);
  const bool nested = GENERATE(true, false);
  CheckpointOptions options = with(1, nested ? 1 : 3);
  if (nested) options.targets = {"blocks.*", "blocks.*.mlp"};
  std::vector<std::string> paths = {"blocks.0", "blocks.1", "blocks.2", "blocks.3"};
  if (nested) paths.insert(paths.begin() + 1, "blocks.0.mlp");
  const std::vector<std::string> order = GENERATE(values<std::vector<std::string>>(
      {{"blocks.1"},
       {"blocks.2", "blocks.3"},
       {"blocks.1", "blocks.2", "blocks.2"},
       {"blocks.0", "blocks.3", "blocks.2", "blocks.1"},
       {"blocks.0", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.3"}}));
  CAPTURE(order);
  CheckpointPolicy policy(options, paths);
  REQUIRE(policy.segments() ==
          (nested ? Segments{{"blocks.0"}, {"blocks.0.mlp"}, {"blocks.1"}, {"blocks.2"}, {"blocks.3"}}
                  : Segments{{"blocks.0", "blocks.1", "blocks.2"}, {"blocks.3"}}));
  const auto gradient = [&](bool apply) {
    Seam seam;
    if (apply) policy.apply(seam);
    w.mutable_grad().reset();
    const ModuleFn mlp = [&](Tensors&& in) { return Tensors{(in[0] * w).sin()}; };
    Tensors x{at::ones({4})};
    const auto scope = policy.forward_scope();
    for (const std::string& path : order) {
      const ModuleFn block = [&, path](Tensors&& in) {
        if (path != "blocks.0") return mlp(std::move(in));
        return seam.run("blocks.0.mlp", mlp, {in[0] * w});
      };
      x = seam.run(path, block, std::move(x));
    }
    torch::autograd::backward({x[0].sum()}, {});
    return w.grad();
  };
  CHECK(at::equal(gradient(false), gradient(true)));
}

TEST_CASE("an unfinished segment is let go at the end of the forward pass") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  CheckpointPolicy policy(with(1, 2), {"blocks.0", "blocks.1"});
  Seam seam;
  policy.apply(seam);
  const at::Tensor w = at::full({64}, 0.5).requires_grad_(true);
  const ModuleFn block = [w](Tensors&& in) { return Tensors{in[0] * w}; };
  const int64_t before = cpu_accounts().live_bytes();
  {
    const auto scope = policy.forward_scope();
    seam.run("blocks.0", block, {at::ones({64})});
    CHECK(cpu_accounts().live_bytes() > before);  // its input is kept for a second module
  }
  CHECK(cpu_accounts().live_bytes() == before);
}
