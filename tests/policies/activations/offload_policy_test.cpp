// policies.checkpoint.keep = "offload": what of a DiT's blocks goes to host memory, to the byte, beside the
// other policies, and what is refused.
//
// The rules by which a block keeps tensors are those of savings_test.cpp.
#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/offload.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/policies/dit_steps.h"
#include "support/policies/segment_tests.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using namespace dtk::test;

namespace {

constexpr int64_t N = 3;

CheckpointOptions offload_from(int64_t min_bytes) {
  CheckpointOptions options;
  options.enabled = Enabled::on;
  options.targets = {"blocks.*"};
  options.keep = KeepWord::offload;
  options.offload_min_bytes = {min_bytes};
  return options;
}

int64_t bytes_of(const std::map<std::string, int64_t>& items, const std::string& path) {
  const auto found = items.find(path);
  return found == items.end() ? 0 : found->second;
}

// What the report adds where nothing is gained.
std::string same_memory() {
  return test_device().is_cpu() ? "; the training device is the CPU: it is the same memory" : "";
}

struct Step {
  Tensors gradients;
  int64_t kept = 0;                          // on the device after forward
  std::map<std::string, int64_t> host;       // after forward, by module path
  std::map<std::string, int64_t> on_device;  // saved, likewise; the CPU's only
  PolicyReport report;
};

// Without dropout, so that gradients of any two steps are comparable.
Step step(const CheckpointOptions& options, const Combination& other = {false, true, false}) {
  dtk::models::Dit dit = make_dit(4);
  PolicyOptions all = options_of(other);
  all.checkpoint = options;
  Seam seam;
  PolicySet policies(all, {test_device(), dit.parameters(), dit.paths()}, seam);
  dit.seam.run = seam.run;
  dit.seam.attention = seam.attention;
  dit.seam.keep = seam.keep;
  const auto [x, t, y] = batch_of(N);
  const SavedTensorScope ledger(saved_tensor_ledger());
  const int64_t before = DeviceMemory::live();
  at::Tensor loss;
  {
    const auto scope = policies.forward_scope();
    loss = dit.forward(x, t, y, /*training=*/true).pow(2).sum();
  }
  Step done;
  done.kept = DeviceMemory::live() - before;
  const auto of = [](const MemoryAccounts& accounts, Category category) {
    const auto items = accounts.live().items();
    const auto found = items.find(category);
    return found == items.end() ? std::map<std::string, int64_t>{} : found->second;
  };
  done.host = of(on_cpu() ? host_accounts() : cpu_accounts(), Category::offloaded);
  if (on_cpu()) done.on_device = of(cpu_accounts(), Category::saved);
  torch::autograd::backward({loss}, {});
  policies.before_step();
  policies.after_step();
  done.report = policies.reports().back();
  for (const auto& [name, parameter] : dit.parameters()) {
    if (parameter.requires_grad()) done.gradients.push_back(parameter.grad());
  }
  return done;
}

CheckpointOptions all_kept() {
  CheckpointOptions options;
  options.enabled = Enabled::off;
  return options;
}

void check_equal(const Step& a, const Step& b) {
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) CHECK_VALUES(same_bits(a.gradients[i], b.gradients[i]));
}

}  // namespace

TEST_CASE("each block's saved tensors wait in host memory, to the byte, beside any other policies",
          "[device]") {
  Fixture fixture;
  for (const bool bf16 : {false, true}) {
    for (const bool fused : {false, true}) {
      CAPTURE(bf16, fused);
      const Combination other{bf16, fused, false};
      const Step plain = step(all_kept(), other), moved = step(offload_from(0), other);
      check_equal(plain, moved);
      if (!on_cpu()) continue;  // a device's fused kernels may keep more
      const int64_t block = kept_by_block(other, N) + casts_of_block(other), c = N * 4 * D;
      for (int64_t i = 0; i < 4; ++i) {
        const std::string path = "blocks." + std::to_string(i);
        CHECK(moved.host.at(path) == block + (i == 0 ? c : 0));  // c is of all blocks; copied once
        // The last block's, and c, which the last block saved too.
        CHECK(bytes_of(moved.on_device, path) == (i == 0 ? c : i == 3 ? kept_by_block(other, N) : 0));
      }
      CHECK(plain.kept - moved.kept == 3 * block);
    }
  }
}

TEST_CASE("large storages go, small ones stay, and the report says so", "[device]") {
  Fixture fixture;
  // In fp32 the modulation (six rows of D a sample), c and the statistics of norms are smaller than this.
  constexpr int64_t min_bytes = N * T * D * 4;
  const Step plain = step(all_kept()), moved = step(offload_from(min_bytes));
  check_equal(plain, moved);
  CHECK(moved.report.active);
  CHECK(moved.report.reason ==
        "offloads 4 modules in 4 segments, from blocks.0 to blocks.3: storages of at least 24576 bytes" +
            same_memory());
  // Of a block: 20 D a token (x, LN, modulated, q k v, attention, ...), all but statistics and modulation.
  CHECK(moved.report.host_bytes == 4 * N * T * 80 * D);
  CHECK(plain.kept - moved.kept == 3 * N * T * 80 * D);
}

TEST_CASE("two blocks a segment: two stay on the device after forward", "[device]") {
  Fixture fixture;
  CheckpointOptions pairs = offload_from(N * T * D * 4);
  pairs.segment = 2;
  const Step plain = step(all_kept()), moved = step(pairs);
  check_equal(plain, moved);
  CHECK(moved.report.reason ==
        "offloads 4 modules in 2 segments, from blocks.0 to blocks.3: storages of at least 24576 bytes" +
            same_memory());
  CHECK(plain.kept - moved.kept == 2 * N * T * 80 * D);
}

// A block of whose tensors only the input, and where it is named fc2_out, is kept: (N, T, D) each.
TEST_CASE("with recomputation, inputs and kept results wait in host memory", "[device]") {
  Fixture fixture;
  constexpr int64_t one = N * T * D * 4;
  const bool with_result = GENERATE(false, true);
  CAPTURE(with_result);
  CheckpointOptions stays, goes = offload_from(one);
  stays.enabled = Enabled::on;
  goes.keep = std::vector<std::string>{"offload"};
  if (with_result) {
    stays.keep = std::vector<std::string>{"fc2_out"};
    goes.keep = std::vector<std::string>{"fc2_out", "offload"};
  }
  const CheckpointCounts before = checkpoint_counts();
  const Step plain = step(all_kept()), kept = step(stays);
  const int64_t recomputes = checkpoint_counts().recomputes - before.recomputes;
  const Step moved = step(goes);
  check_equal(plain, moved);
  CHECK(recomputes == 4);
  CHECK(checkpoint_counts().recomputes - before.recomputes == 2 * recomputes);
  const int64_t of_block = with_result ? 2 * one : one;
  CHECK(plain.kept - kept.kept > 3 * of_block);  // the baseline recomputes
  CHECK(kept.kept - moved.kept == 3 * of_block);
  CHECK(moved.report.host_bytes == 4 * of_block);
  CHECK(moved.report.active);
  CHECK(moved.report.reason == std::string("recomputes 4 modules in 4 segments, from blocks.0 to blocks.3") +
                                   (with_result ? ", keeping fc2_out, these and" : ",") +
                                   " inputs in host memory: storages of at least 24576 bytes" +
                                   same_memory());
}

TEST_CASE("each module keeps what the entries for it say", "[device]") {
  Fixture fixture;
  constexpr int64_t one = N * T * D * 4;
  CheckpointOptions moves = offload_from(one), computes = offload_from(one), mixed = offload_from(one);
  moves.targets = {"blocks.0", "blocks.1"};
  computes.targets = {"blocks.2"};
  computes.keep = std::vector<std::string>{"fc2_out"};
  mixed.keep = std::vector<std::string>{"blocks.0: all",     "blocks.0: offload", "blocks.1: all",
                                        "blocks.1: offload", "blocks.2: fc2_out", "blocks.3: all"};
  const Step plain = step(all_kept()), moved = step(moves), computed = step(computes);
  const CheckpointCounts before = checkpoint_counts();
  const Step all = step(mixed);
  CHECK(checkpoint_counts().recomputes - before.recomputes == 1);
  check_equal(plain, all);
  const int64_t off_device = plain.kept - moved.kept, not_kept = plain.kept - computed.kept;
  CHECK(off_device == N * T * 80 * D);  // of two blocks, one
  CHECK(not_kept > 10 * one);
  CHECK(plain.kept - all.kept == off_device + not_kept);
  CHECK(all.report.host_bytes == 2 * N * T * 80 * D);
  CHECK(all.report.reason ==
        "recomputes 1 and offloads 2 modules in 3 segments, from blocks.0 to blocks.2, keeping "
        "blocks.0: all, blocks.0: offload, blocks.1: all, blocks.1: offload, blocks.2: fc2_out, blocks.3: "
        "all: storages of at least 24576 bytes" +
            same_memory());
}

TEST_CASE(
    "entries for some modules join in segments what keeps alike, and are refused where they mean none") {
  const std::vector<std::string> paths = {"blocks.0", "blocks.1", "blocks.2", "blocks.3"};
  CheckpointOptions options;
  options.targets = {"blocks.*"};
  const auto segments = [&](std::vector<std::string> keep, int64_t length) {
    options.keep = std::move(keep);
    options.segment = length;
    return CheckpointPolicy(options, paths).segments();
  };
  using Segments = std::vector<std::vector<std::string>>;
  CHECK(segments({"blocks.2: fc2_out", "blocks.3: fc2_out"}, 4) ==
        Segments{{"blocks.0", "blocks.1"}, {"blocks.2", "blocks.3"}});
  CHECK(segments({"blocks.1: all"}, 2) == Segments{{"blocks.0"}, {"blocks.2", "blocks.3"}});
  CHECK(segments({"blocks.*: all"}, 1).empty());
  const auto refusal = [&](std::vector<std::string> keep) {
    return error_text<PolicyError>([&] { segments(std::move(keep), 1); });
  };
  CHECK(refusal({"blocks.9: offload"}) ==
        "policies.checkpoint.keep: \"blocks.9\" of \"blocks.9: offload\" matches none of the chosen "
        "modules; near: blocks.0, blocks.1, blocks.2");
  CHECK(refusal({"blocks.0: block"}) ==
        "policies.checkpoint.keep: \"blocks.0: block\" is not the name of a result; allowed for some "
        "modules: all, offload, sets, names and operators");
  CHECK(refusal({"blocks.0: "}) == "policies.checkpoint.keep holds an empty name; take it out");
  options.enabled = Enabled::on;
  CHECK(refusal({"blocks.*: all"}) ==
        "policies.checkpoint: asked for, but policies.checkpoint.keep keeps every tensor of each chosen "
        "module, so it has no effect; keep less, or set policies.checkpoint.enabled = false");
}

TEST_CASE("with recomputation, where nothing is large enough to move, only that has no effect") {
  Fixture fixture;
  CheckpointOptions goes = offload_from(1 << 30);
  goes.keep = std::vector<std::string>{"offload"};
  CHECK(error_text<PolicyError>([&] { step(goes); }) ==
        "policies.checkpoint.enabled = true, but no forward pass has saved a storage of at least 1073741824 "
        "bytes in a chosen module, so it has no effect; lower policies.checkpoint.offload_min_bytes, or "
        "set policies.checkpoint.enabled = \"default\"");
  goes.enabled = Enabled::by_default;
  const PolicyReport report = step(goes).report;
  CHECK(report.active);
  CHECK(report.reason ==
        "recomputes 4 modules in 4 segments, from blocks.0 to blocks.3, inputs in host memory: storages of "
        "at least 1073741824 bytes; nothing waits there: no forward pass has saved a storage of at least "
        "1073741824 bytes in a chosen module");
}

TEST_CASE("where nothing is large enough, what was asked for is refused, a default reports it") {
  Fixture fixture;
  CHECK(error_text<PolicyError>([] { step(offload_from(1 << 30)); }) ==
        "policies.checkpoint.enabled = true, but no forward pass has saved a storage of at least 1073741824 "
        "bytes in a chosen module, so it has no effect; lower policies.checkpoint.offload_min_bytes, or "
        "set policies.checkpoint.enabled = \"default\"");
  CheckpointOptions by_default = offload_from(1 << 30);
  by_default.enabled = Enabled::by_default;
  const PolicyReport report = step(by_default).report;
  CHECK_FALSE(report.active);
  CHECK(report.reason ==
        "without effect: no forward pass has saved a storage of at least 1073741824 bytes in a chosen "
        "module");
  CHECK(error_text<PolicyError>([] { CheckpointPolicy(offload_from(-1), {"blocks.0"}); }) ==
        "policies.checkpoint.offload_min_bytes = -1 is out of range; allowed: [0, inf)");
}
