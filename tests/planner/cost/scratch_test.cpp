// Scratch of CPU kernels: measured for the calls of a plan, booked by the next plan, equal to the run's.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <dtk/planner/simulate.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/plans/plan_accuracy.h"
#include "toolkit/plan/plan.h"

using namespace dtk;
using planner::MeasuredScratch;
using policies::LoggedPhase;

namespace {

// Products large enough for oneDNN.
LoadedConfig job(const std::string& precision, const std::string& threads) {
  return parse_config(
      "", "case",
      {"data.kind=synthetic", "data.samples=100", "data.batch=8", "model.depth=2", "model.hidden=64",
       "model.heads=2", "model.patch=2", "model.image_size=16", "model.channels=3", "model.classes=5",
       "train.steps=20", "train.threads=" + threads, "train.out=runs/scratch", "sample.steps=3",
       "sample.per_class=2", "sample.classes=0-1", "policies.precision.cpu=" + precision});
}

int64_t most(const MeasuredScratch& scratch) {
  int64_t bytes = 0;
  for (const auto& [call, taken] : scratch) bytes = std::max(bytes, taken.most);
  return bytes;
}

struct Compared {
  bool equal = true, below = false;
  std::string text;
};

// With scratch: the sums of both at their highest, by phase.
Compared compared(const PlanAccuracy& accuracy) {
  REQUIRE(accuracy.planned.size() == accuracy.measured.size());
  Compared result;
  for (size_t i = 0; i < accuracy.planned.size(); ++i) {
    const LoggedPhase &planned = accuracy.planned[i], &measured = accuracy.measured[i];
    REQUIRE(planned.name == measured.name);
    result.equal &= planned.with_scratch == measured.with_scratch && planned.scratch == measured.scratch;
    result.below |= planned.with_scratch < measured.with_scratch;
    result.text += measured.name + ": " + std::to_string(planned.with_scratch) + " planned, " +
                   std::to_string(measured.with_scratch) + " measured; scratch " +
                   std::to_string(planned.scratch) + ", " + std::to_string(measured.scratch) + "\n";
  }
  return result;
}

// rows x width, with gradients of an affine layer norm's weight and bias.
void affine_layer_norm_backward(int64_t rows, int64_t width) {
  const at::Tensor x = at::empty({rows, width}), statistics = at::empty({rows, 1}),
                   weight = at::empty({width});
  at::native_layer_norm_backward(x, x, {width}, statistics, statistics, weight, weight, {true, true, true});
}

}  // namespace

TEST_CASE("what a call was seen to take is what its kernel says in LibTorch's source") {
  const auto job = [](const planner::EndOfPlan&) { affine_layer_norm_backward(32, 48); };
  CHECK(planner::simulate(c10::kCPU, job).scratch.calls == nullptr);
  const planner::SimulationResult plan = planner::simulate(c10::kCPU, job, {.note_calls = true});
  CHECK(plan.scratch.not_known == std::set<std::string>{"aten::native_layer_norm_backward"});
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const MeasuredScratch measured = planner::measure_scratch(*plan.scratch.calls);
    REQUIRE(measured.size() == 1);
    CHECK(measured.begin()->first.operation == "aten::native_layer_norm_backward");
    CHECK(measured.begin()->first.arguments.starts_with("Float[32,48], Float[32,48], [48], Float[32,1], "));
    // layer_norm_kernel.cpp: a row of sums for each of the two gradients and each thread.
    CHECK(measured.begin()->second.most == 2 * threads * 48 * 4);
    CHECK(measured.begin()->second.beside_results == measured.begin()->second.most);
  }
}

TEST_CASE("a measurement is taken by calls of its shapes, types and strides alone") {
  const auto multiply = [](int64_t rows, at::ScalarType type, bool transposed) {
    return [=](const planner::EndOfPlan&) {
      const at::Tensor a = at::empty({rows, 64}, type), b = at::empty({64, 64}, type);
      at::mm(a, transposed ? b.t() : b);
    };
  };
  const MeasuredScratch one = {{{"aten::mm", "Float[32,64], Float[64,64]"}, {3000, 1000}}};
  const auto plan = [&](const auto& multiplied) {
    return planner::simulate(c10::kCPU, multiplied, {.scratch = &one, .scratch_source = "a test"});
  };
  const auto taken = plan(multiply(32, at::kFloat, false));
  CHECK(taken.scratch.measured_calls == 1);
  CHECK(taken.scratch.largest == 3000);
  CHECK(taken.scratch.source == "a test");
  CHECK(taken.scratch.not_known.empty());
  const policies::MemorySums peak = policies::highest(taken.device).peak;
  CHECK(peak.of(policies::Category::scratch) == 1000);
  CHECK(peak.bytes == 1000 + 4 * (32 * 64 + 64 * 64 + 32 * 64));
  for (const auto& other :
       {multiply(33, at::kFloat, false), multiply(32, at::kDouble, false), multiply(32, at::kFloat, true)}) {
    const auto unknown = plan(other);
    CHECK(unknown.scratch.measured_calls == 0);
    CHECK(unknown.scratch.not_known == std::set<std::string>{"aten::mm"});
    CHECK(policies::highest(unknown.device).peak.of(policies::Category::scratch) == 0);
  }
}

TEST_CASE("with a calibration a plan and its run are equal with their scratch") {
  const std::string precision = GENERATE("bf16", "fp32");
  const LoadedConfig loaded = job(precision, "1");
  const Calibration calibration = calibrate_cpu(loaded);
  const Compared without = compared(plan_accuracy(loaded));
  const Compared with = compared(plan_accuracy(loaded, {.scratch = &calibration.scratch}));
  INFO("without\n" << without.text << "with\n" << with.text);
  CHECK(with.equal);
  CHECK(calibration.scratch.size() > 10);
  CHECK(most(calibration.scratch) > 0);
  const auto has = [&](const char* name) {
    return calibration.instruction_set.find(name) != std::string::npos;
  };
  if (precision == "bf16" && has("avx512_bf16")) {
    CHECK_FALSE(without.equal);
    CHECK(without.below);
    // The figures of toolkit/plan/README.md; oneDNN packs otherwise without matrix tiles.
    if (has("amx_bf16"))
      CHECK_THAT(with.text,
                 Catch::Contains("first_step: 4913732 planned, 4913732 measured; scratch 349312, 349312\n"));
    CHECK(without.text.find("first_step: 4798916 planned") != std::string::npos);
  }
}

TEST_CASE("the terms of a loss, which its kernel makes twice, are planned without a calibration") {
  const LoadedConfig loaded =
      parse_config("", "case",
                   {"data.kind=synthetic", "data.samples=64", "data.batch=32", "model.depth=1",
                    "model.hidden=8", "model.heads=1", "model.patch=8", "model.image_size=64",
                    "model.channels=4", "model.classes=5", "train.steps=3", "train.threads=1",
                    "train.out=runs/scratch", "sample.per_class=0", "policies.precision.cpu=fp32"});
  const PlanAccuracy accuracy = plan_accuracy(loaded);
  const Compared plain = compared(accuracy);
  INFO(plain.text);
  const auto forward = [](const std::vector<LoggedPhase>& phases) {
    const auto found = std::find_if(phases.begin(), phases.end(),
                                    [](const LoggedPhase& one) { return one.name == "forward"; });
    REQUIRE(found != phases.end());
    return *found;
  };
  const LoggedPhase planned = forward(accuracy.planned), measured = forward(accuracy.measured);
  constexpr int64_t kScratch = 4LL * 32 * 4 * 64 * 64 + 8;  // with the number that the mean is divided by
  CHECK(measured.scratch == kScratch);
  CHECK(measured.with_scratch == measured.kept.bytes + kScratch);
  CHECK(planned.scratch == kScratch);
  CHECK(planned.with_scratch == measured.with_scratch);
}

TEST_CASE("with several threads, whose scratch overlaps by luck, a calibrated plan is not below the run") {
  const LoadedConfig loaded = job("bf16", "2");
  const Calibration calibration = calibrate_cpu(loaded);
  const Compared with = compared(plan_accuracy(loaded, {.scratch = &calibration.scratch}));
  INFO(with.text);
  CHECK_FALSE(with.below);
}

TEST_CASE(
    "a calibrated plan knows the scratch of each of its calls, and a plain one names what it does not know") {
  const LoadedConfig loaded = job("bf16", "1");
  const Plan plain = make_plan(loaded, c10::kCPU);
  CHECK(plain.scratch.not_known.count("aten::addmm") == 1);
  CHECK(plain.scratch.not_known.count("aten::mm") == 1);
  CHECK(plain.scratch.measured_calls == 0);
  const Calibration calibration = calibrate_cpu(loaded);
  const Plan plan = make_plan(loaded, c10::kCPU, {.scratch = &calibration.scratch});
  CHECK(plan.scratch.not_known.empty());
  CHECK(plan.scratch.measured_calls == static_cast<int64_t>(calibration.scratch.size()));
  CHECK(plan.scratch.largest == most(calibration.scratch));
}
