// What a policy saved is the difference of two measured peaks, and measuring it changes nothing.
#include "toolkit/train/policy_savings.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <sstream>
#include <stdexcept>

#include "support/catch.h"
#include "support/runs/random_state.h"
#include "support/runs/tiny_run.h"
#include "toolkit/core/numbers.h"
#include "toolkit/device/device.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/train/trial_step.h"

using namespace dtk;
using policies::Enabled;
using policies::PolicyOptions;

namespace {

constexpr int64_t kMicroBatch = 4;

/// All that can be on is on. 64 tokens, so that attention weights and activations count.
RunConfig everything_on() {
  RunConfig config = test::tiny_config();
  dit::options_of(config).model.hidden = 32;
  dit::options_of(config).model.patch = 1;
  config.policies.precision.enabled = Enabled::on;
  config.policies.attention.enabled = Enabled::on;
  config.policies.checkpoint.enabled = Enabled::on;
  return config;
}

struct Setting {
  explicit Setting(const RunConfig& chosen) : config(chosen) {
    policies::cpu_accounts().reset_phases("build");
    trainer.step();
    trainer.wait_for_data();  // so that peaks are of the step alone
  }
  int64_t peak(const PolicyOptions& options) {
    const std::string phase = "direct " + std::to_string(++measured);
    const policies::PhaseScope scope(phase);
    TrialStep(config, trainer.model(), options, kMicroBatch).run();
    for (const auto& entry : policies::cpu_accounts().phases()) {
      if (entry.name == phase) return entry.peak.bytes;
    }
    return -1;
  }
  std::vector<PolicySaving> savings(const TrialLimits& limits = {}) {
    return measure_savings(trainer, config, policies::cpu_accounts(), limits);
  }

  const policies::CountingAllocatorGuard counting;
  const policies::SavedTensorEngineGuard engine;
  const RunConfig config;
  test::SteppingClock clock;
  Trainer trainer{config, at::kCPU, test::tiny_data(), clock};
  int measured = 0;
};

std::vector<std::string> names(const std::vector<PolicySaving>& savings) {
  std::vector<std::string> all;
  for (const PolicySaving& saving : savings) all.push_back(saving.report.policy);
  return all;
}

using test::random_state;

}  // namespace

TEST_CASE("savings: each active policy has the difference of two peaks") {
  Setting run(everything_on());
  PolicyOptions without_precision = run.config.policies, without_attention = run.config.policies,
                without_fusion = run.config.policies, without_checkpoint = run.config.policies;
  without_precision.precision.enabled = Enabled::off;
  without_attention.attention.enabled = Enabled::off;
  without_fusion.fusion.enabled = Enabled::off;
  without_checkpoint.checkpoint.enabled = Enabled::off;
  const int64_t all = run.peak(run.config.policies);
  const auto savings = run.savings();
  REQUIRE(names(savings) ==
          std::vector<std::string>{"precision", "attention", "fusion", "ema", "checkpoint"});
  CHECK(savings[0].bytes == run.peak(without_precision) - all);
  CHECK(savings[1].bytes == run.peak(without_attention) - all);
  CHECK(savings[2].bytes == run.peak(without_fusion) - all);
  CHECK(savings[3].bytes == 0);  // on a CPU it keeps nothing off the device
  CHECK(savings[4].bytes == run.peak(without_checkpoint) - all);
  for (const size_t i : {0U, 1U, 2U, 4U}) {
    INFO(savings[i].report.policy);
    CHECK(*savings[i].bytes > 0);
  }
  for (const PolicySaving& saving : savings) {
    CHECK(saving.report.active);
    CHECK(saving.note.empty());
  }
  CHECK(run.peak(run.config.policies) == all);
}

TEST_CASE("savings: passes with a policy and without it are timed in turns, as many pairs as begin in time") {
  Setting run(everything_on());
  // Each pair asks whether it begins in time, then when each pass begins and ends: 0.3 s with the policy and
  // 0.2 s without, which come in turns.
  const std::vector<double> since{0, 0, 0.3, 0, 0.2, 0, 0, 0.2, 0, 0.3};
  double now = 0;
  size_t asked = 0;
  const auto seconds = [&] {
    if (asked > 0) now += since[(asked - 1) % since.size()];
    ++asked;
    return now;
  };
  const auto savings =
      run.savings({.available = {}, .stop_requested = {}, .seconds = seconds, .run_seconds = 10});
  REQUIRE(savings.size() == 5);
  REQUIRE(savings[0].time);
  CHECK(savings[0].time->pairs == 4);
  for (const double part : {savings[0].time->slower_by, savings[0].time->lowest, savings[0].time->highest})
    CHECK(part == Approx(0.5));
  CHECK_FALSE(savings[3].time);  // ema has no part in a pass
  CHECK(savings[0].remarks() == "a pass takes 50.0 % longer with it (50.0 to 50.0 %, 4 pairs)");
  CHECK(timed_text({3, -0.125, -0.2, 0.01}) == "takes 12.5 % less time with it (-20.0 to 1.0 %, 3 pairs)");
  for (const TrialLimits& limits : {TrialLimits{}, TrialLimits{{}, {}, seconds, 9.9}}) {
    for (const PolicySaving& saving : run.savings(limits)) CHECK_FALSE(saving.time);
  }
}

TEST_CASE("savings: a policy that is off saved nothing, and costs no step") {
  RunConfig config = test::tiny_config();
  PolicyOptions::tables(config.policies, [](const char*, auto& one) { one.enabled = Enabled::off; });
  Setting run(config);
  const auto savings = run.savings();
  REQUIRE(names(savings) ==
          std::vector<std::string>{"precision", "attention", "fusion", "ema", "checkpoint"});
  for (const PolicySaving& saving : savings) {
    INFO(saving.report.policy);
    CHECK_FALSE(saving.report.active);
    CHECK_FALSE(saving.bytes);
    CHECK(saving.note.empty());
  }
  for (const auto& phase : policies::cpu_accounts().phases()) CHECK_FALSE(phase.name.starts_with("trial"));
}

TEST_CASE("savings: a longer segment is compared with the shortest") {
  RunConfig config = everything_on();
  config.policies.precision.enabled = Enabled::off;
  config.policies.checkpoint.segment = 2;  // all blocks, so all of them are recomputed at once
  Setting run(config);
  PolicyOptions shortest = config.policies;
  shortest.checkpoint.segment = 1;
  const int64_t more = run.peak(config.policies) - run.peak(shortest);
  REQUIRE(more > 0);
  const auto savings = run.savings();
  CHECK(savings[4].bytes);
  CHECK(savings[4].note == "segment = 2 raises the peak by " + readable_bytes(more) + " against segment = 1");
}

TEST_CASE("savings: parameters, gradients, random state and live bytes are as before") {
  Setting run(everything_on());
  std::vector<at::Tensor> before;
  for (const auto& [name, parameter] : run.trainer.model().parameters()) before.push_back(parameter.clone());
  at::manual_seed(5);
  const std::string random = random_state();
  const TrainingState state = run.trainer.state();
  const int64_t bytes = policies::cpu_accounts().live_bytes();
  run.savings();
  CHECK(policies::cpu_accounts().live_bytes() == bytes);
  CHECK(random_state() == random);
  CHECK(run.trainer.state().samples == state.samples);
  for (size_t i = 0; i < before.size(); ++i) {
    const auto& [name, parameter] = run.trainer.model().parameters()[i];
    INFO(name);
    CHECK(at::equal(parameter, before[i]));
    CHECK_FALSE(parameter.grad().defined());
  }
}

TEST_CASE("savings: a step that does not fit is told instead, and leaves nothing") {
  Setting run(everything_on());
  const int64_t all = run.peak(run.config.policies), bytes = policies::cpu_accounts().live_bytes();
  std::vector<PolicySaving> savings;
  {
    const policies::MemoryBudgetGuard budget(policies::cpu_accounts(), all);
    savings = run.savings();
  }
  for (const size_t i : {0U, 1U, 2U, 4U}) {
    INFO(savings.at(i).report.policy);
    CHECK_FALSE(savings[i].bytes);
    CHECK(savings[i].note == "a step without it does not fit");
  }
  CHECK(savings[3].bytes == 0);
  CHECK(policies::cpu_accounts().live_bytes() == bytes);
  for (const auto& [name, parameter] : run.trainer.model().parameters()) {
    INFO(name);
    CHECK_FALSE(parameter.grad().defined());
  }
  CHECK(run.savings()[4].bytes > 0);
  run.trainer.step();
}

namespace {

std::vector<std::string> notes(const std::vector<PolicySaving>& savings) {
  std::vector<std::string> all;
  for (const PolicySaving& saving : savings) all.push_back(saving.note);
  return all;
}

}  // namespace

TEST_CASE("savings: on the CPU a trial step takes at most half of what the machine can still give") {
  Setting run(everything_on());
  const int64_t all = run.peak(run.config.policies), live = policies::cpu_accounts().live_bytes();
  const auto with_available = [&](std::optional<int64_t> bytes) {
    return run.savings({[bytes] { return bytes; }, nullptr});
  };
  const std::string no_room = "no room left for a trial step", not_without = "a step without it does not fit";
  CHECK(notes(with_available(0)) == std::vector<std::string>{no_room, no_room, no_room, "", no_room});
  CHECK(notes(with_available(2 * (all - live - 1))) ==
        std::vector<std::string>{no_room, no_room, no_room, "", no_room});
  CHECK(notes(with_available(2 * (all - live))) ==
        std::vector<std::string>{not_without, not_without, not_without, "", not_without});
  CHECK(notes(with_available(int64_t{1} << 40)) == std::vector<std::string>(5));
  CHECK(notes(with_available(std::nullopt)) == std::vector<std::string>(5));
  {
    const policies::MemoryBudgetGuard budget(policies::cpu_accounts(), all);  // the smaller one holds
    CHECK(notes(with_available(int64_t{1} << 40))[0] == not_without);
    CHECK(policies::cpu_accounts().limit() == all);
  }
  CHECK(policies::cpu_accounts().live_bytes() == live);
}

TEST_CASE("savings: a stop between two trials leaves the rest unmeasured, and so does any failure") {
  Setting run(everything_on());
  int asked = 0;
  auto savings = run.savings({nullptr, [&] { return ++asked > 1; }});
  const std::string stopped = "not measured: stopped by a signal";
  CHECK(savings[0].bytes);
  CHECK(notes(savings) == std::vector<std::string>{"", stopped, stopped, "", stopped});
  savings = run.savings(
      {[]() -> std::optional<int64_t> { throw std::runtime_error("no figures\nof a stack"); }, nullptr});
  const std::string failed = "not measured: no figures";
  CHECK(notes(savings) == std::vector<std::string>{failed, failed, failed, "", failed});
  run.trainer.step();
}

TEST_CASE("savings: what Linux says it can still give") {
  const auto said = [](const std::string& text) {
    std::istringstream stream(text);
    return available_bytes(stream);
  };
  CHECK(said("MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:    4001 kB\nBuffers: 1 kB\n") ==
        4001 * 1024);
  CHECK_FALSE(said("MemTotal:       8000 kB\nMemFree:  100 kB\n"));
  CHECK_FALSE(said("MemAvailable: none\n"));
  CHECK_FALSE(said(""));
  REQUIRE(available_bytes());
  CHECK(*available_bytes() > 0);
}

TEST_CASE("savings: the table") {
  CHECK(savings_table({{{"precision", true, "bf16 autocast, asked for"}, 1536, ""},
                       {{"attention", true, "fused kernels, no weights are stored"}, -2048, ""},
                       {{"ema", false, "switched off: policies.ema.enabled = false"}, std::nullopt, ""},
                       {{"checkpoint", true, "recomputes 2 modules in 2 segments, from blocks.0 to blocks.1"},
                        std::nullopt,
                        "a step without it does not fit"}}) ==
        "by how much each policy lowers the peak of forward and backward\n"
        "  precision   on      1.5 KiB   bf16 autocast, asked for\n"
        "  attention   on     -2.0 KiB   raises the peak here; fused kernels, no weights\n"
        "                                are stored\n"
        "  ema         off           -   switched off: policies.ema.enabled = false\n"
        "  checkpoint  on            ?   a step without it does not fit; recomputes 2\n"
        "                                modules in 2 segments, from blocks.0 to\n"
        "                                blocks.1\n");
}
