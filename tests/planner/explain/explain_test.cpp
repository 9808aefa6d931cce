// What explain() counts of a job that the planner has never heard of, and the words it finds for it.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/planner/explain.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/phase_meter.h>

#include <functional>
#include <map>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/one_line.h"

using namespace dtk;
using namespace dtk::policies;
using planner::Explanation;
using planner::SegmentGain;

namespace {

constexpr int64_t kBatch = 8, kWidth = 32, kActivation = 4 * kBatch * kWidth, kWeight = 4 * kWidth * kWidth;

at::Tensor run_one(const Run& run, const char* path, const std::function<at::Tensor(at::Tensor)>& fn,
                   at::Tensor x) {
  const ModuleFn of_list = [fn](Tensors&& in) { return Tensors{fn(std::move(in.front()))}; };
  Tensors inputs;
  inputs.push_back(std::move(x));
  return run(path, of_list, std::move(inputs)).front();
}

// mix, squash, double, mix again, add: what each keeps is known from LibTorch's derivatives.
struct Job {
  explicit Job(c10::Device where) : device(where) {}

  void operator()(const Run& run) const {
    const auto options = at::TensorOptions().device(device);
    at::Tensor first, second, batch;
    {
      const OwnerScope owner(Category::parameters, "weights");
      first = at::randn({kWidth, kWidth}, options).requires_grad_(true);
      second = at::randn({kWidth, kWidth}, options).requires_grad_(true);
    }
    planner::claim_state({{"first", first}, {"second", second}});
    {
      const OwnerScope owner(Category::data, "batch");
      batch = at::randn({kBatch, kWidth}, options);
    }
    for (int i = 0; i < 2; ++i) {
      {
        const PhaseScope phase("forward");
        at::Tensor loss = forward(run, first, second, batch);
        const PhaseScope backward("backward");
        if (with_backward) std::exchange(loss, {}).backward();
      }
      const PhaseScope phase("update");
      const at::NoGradGuard no_grad;
      if (first.grad().defined()) first.sub_(first.grad() * 0.1);
    }
  }

  at::Tensor forward(const Run& run, const at::Tensor& first, const at::Tensor& second,
                     const at::Tensor& batch) const {
    const c10::AutoGradMode mode(grad_mode);
    at::Tensor x = run_one(
        run, "mix", [&](const at::Tensor& in) { return at::mm(in, first); }, batch);
    x = run_one(
        run, "squash", [](const at::Tensor& in) { return at::sigmoid(in); }, std::move(x));
    x = run_one(
        run, "blend", [&](const at::Tensor& in) { return at::tanh(at::gelu(at::mm(in, second))); },
        std::move(x));
    x = run_one(
        run, "shift", [](const at::Tensor& in) { return in + 1; }, std::move(x));
    const ModulePathScope path("loss");
    return (x * x).sum();
  }

  c10::Device device;
  bool grad_mode = true, with_backward = true;
};

Tensors recompute(std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
  return checkpoint(path, fn, std::move(inputs));
}

Explanation explained(const Job& job, const Run& by = recompute) {
  planner::ExplainOptions options;
  options.recompute = by;
  return planner::explain(job.device, job, options);
}

std::map<std::string, SegmentGain> by_path(const Explanation& why) {
  std::map<std::string, SegmentGain> map;
  for (const SegmentGain& one : why.plain.segments) map[one.path] = one;
  return map;
}

using dtk::test::kCpu;
using dtk::test::kCuda;

}  // namespace

TEST_CASE("explain: what each module saves, its inputs and its gain, to the byte") {
  for (const c10::Device device : {kCpu, kCuda}) {
    const Explanation why = explained(Job(device));
    CHECK(why.plain.backward);
    // The batch; sigmoid's result, which the second product saves too; the product, gelu's input; tanh's
    // result is not saved by the shift; x of the loss.
    CHECK(why.plain.saved == 5 * kActivation);
    CHECK(why.plain.entering == kActivation);
    CHECK(why.plain.outside == kActivation);
    CHECK(why.plain.max_gain() == 3 * kActivation);
    const auto segments = by_path(why);
    REQUIRE(segments.size() == 4);
    CHECK(segments.at("mix") == SegmentGain{"mix", kActivation, kActivation, 0,
                                            "all that it saves is its input: nothing is let go"});
    CHECK(
        segments.at("squash") ==
        SegmentGain{"squash", kActivation, kActivation, -kActivation,
                    "its result is blend's input, which blend keeps all the same; its own input, the result "
                    "of mix, is saved by nobody: splitting here keeps one tensor more"});
    CHECK(segments.at("blend") == SegmentGain{"blend", 3 * kActivation, kActivation, 2 * kActivation, ""});
    CHECK(segments.at("shift") ==
          SegmentGain{"shift", 0, kActivation, 0, "it saves nothing for backward: nothing can be let go"});
  }
}

TEST_CASE("explain: a module's gain is what a plan with it as the only segment saves less") {
  for (const c10::Device device : {kCpu, kCuda}) {
    const Job job(device);
    for (const SegmentGain& one : explained(job, nullptr).plain.segments) {
      const Explanation alone = explained(job, [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
        return path == one.path ? checkpoint(path, fn, std::move(in)) : fn(std::move(in));
      });
      REQUIRE(alone.recomputed);
      INFO(one.path);
      CHECK(alone.plain.saved - alone.recomputed->saved == one.gain);
    }
  }
}

TEST_CASE("explain: all segments together, and what backward recomputes") {
  for (const c10::Device device : {kCpu, kCuda}) {
    const Explanation why = explained(Job(device));
    REQUIRE(why.recomputed);
    CHECK_FALSE(
        (why.plain.recomputed_held.bytes || why.plain.fetched.bytes || why.recomputed->fetched.bytes));
    // Inputs of mix, squash and blend, and x of the loss; blend makes three again, of which it had none.
    CHECK(why.recomputed->saved == 4 * kActivation);
    CHECK(why.recomputed->recomputed_held.path == "blend");
    CHECK(why.recomputed->recomputed_held.bytes == 2 * kActivation);
    CHECK(why.segments == "all of them");
  }
}

TEST_CASE("explain: the peak's place, the largest parameter and the temporaries of its size") {
  const Explanation why = explained(Job(kCpu));
  CHECK(why.plain.largest.name == "first");
  CHECK(why.plain.largest.bytes == kWeight);
  CHECK(why.plain.largest.temporaries == 1);
  CHECK(why.plain.largest.phase == "update");
  CHECK(why.plain.largest.operators == std::vector<std::string>{"aten::mul"});
  const PhasePeak peak = highest(why.plain.plan.device);
  CHECK(why.plain.places.at("backward").backward);
  CHECK(why.plain.places.at("update").operation == "aten::mul");
  // Of weights that have no gradient yet one is made, beside that of the product.
  const planner::LargestAlive alive = planner::largest_alive(peak.peak);
  CHECK(alive.category == Category::temporaries);
  CHECK(alive.operation == "aten::mm");
  CHECK(alive.bytes == kWeight + kActivation);
  const std::string text = test::one_line(planner::text_of(why));
  CHECK_THAT(text,
             Catch::Contains("peak 24,584 bytes in phase backward, in the backward of blend, at aten::mm; "
                             "alive there, the most of one operator: aten::mm, 5,120 bytes (temporaries) "
                             "with the segments "));
  CHECK_THAT(text, Catch::Contains("saved 1,024 checkpointing ") &&
                       Catch::Contains(" half the batch, with its temporaries"));
  CHECK_THAT(text, !Catch::Contains("host memory"));  // the CPU's own
  CHECK_THAT(test::one_line(planner::text_of(explained(Job(kCuda)))),
             Catch::Contains("saved 1,024 checkpointing ") &&
                 Catch::Contains("saved 1,024 keeping it in host memory "));
  CHECK_THAT(text, Catch::Contains("what checkpointing can save (planned, nothing was computed) "));
  CHECK_THAT(text, Catch::Contains(
                       "state 16,384 bytes that no segment changes: parameters 8,192, gradients 8,192 "));
  CHECK_THAT(text, Catch::Contains("saved 5,120 bytes for backward, 24 % of both together "));
  CHECK_THAT(text, Catch::Contains("bound at most 3,072 bytes fewer by any choice of these modules, "));
  CHECK_THAT(text,
             Catch::Contains("segments all of them: 4,096 bytes are saved instead of 5,120: 1,024 fewer "));
  CHECK_THAT(text, Catch::Contains("backward holds at most 2,048 bytes that it recomputed, in blend "));
  CHECK_THAT(text, Catch::Contains("! squash 1,024 1,024 -1,024 its result is blend's input"));
  CHECK_THAT(text, Catch::Contains(" blend 3,072 1,024 2,048 ! shift 0 1,024 0 "));
  CHECK_THAT(text, Catch::Contains("in phase " + peak.name));
}

TEST_CASE("explain: what could lower the peak is ranked by what each way gives") {
  Explanation why;
  why.plain.backward = true;
  why.plain.plan.on_cpu = true;
  why.plain.largest.name = "embedding.weight";
  why.plain.largest.bytes = 30'000;
  MemorySums at_peak;
  for (const auto& [category, bytes] :
       {std::pair(Category::parameters, 400'000), std::pair(Category::optimizer, 500'000)}) {
    const uint32_t index = owner_id(category, "a").index;
    if (index >= at_peak.by_owner.size()) at_peak.by_owner.resize(index + 1, 0);
    at_peak.by_owner[index] = bytes;
    at_peak.bytes += bytes;
  }
  why.plain.plan.device = {{"update", at_peak}};
  CHECK_THAT(test::one_line(planner::text_of(why)),
             Catch::EndsWith("the most, each alone: another phase's peak remains "
                             "optimizer 500,000 an optimizer without "
                             "optimizer 250,000 moments in half the bits "
                             "parameters 200,000 half the bits, of the weights alone "
                             "parameters 90,000 doing without embedding.weight, its gradient and moments "));
}

TEST_CASE("explain: neighbours that are alike are one row, also where they gain nothing") {
  Explanation why;
  why.plain.backward = true;
  for (int i = 0; i < 6; ++i) {
    const std::string path = "norms." + std::to_string(i);
    why.plain.segments.push_back({path, 0, 4096, 0, path + ".scale saves it too: nothing is let go"});
  }
  why.plain.segments.push_back({"head", 0, 4096, 0, "it saves nothing for backward: nothing can be let go"});
  CHECK_THAT(test::one_line(planner::text_of(why)),
             Catch::Contains(" ! norms.0 to norms.5 (6) 0 4,096 0 of the first: norms.0.scale saves it too: "
                             "nothing is let go ! head 0 4,096 0 it saves nothing "));
}

TEST_CASE("explain: without grad mode nothing is saved, and that is all that is said") {
  Job job(kCpu);
  job.grad_mode = job.with_backward = false;
  const Explanation why = explained(job);
  CHECK_FALSE((why.plain.backward || why.plain.with_gradients || why.recomputed));
  CHECK(planner::largest_alive({}).bytes == 0);
  CHECK(why.plain.saved == 0);
  CHECK(by_path(why).at("blend") ==
        SegmentGain{"blend", 0, 0, 0, "no forward pass that backward followed ran it"});
  const std::string text = test::one_line(planner::text_of(why));
  CHECK_THAT(
      text,
      Catch::Contains("no effect nothing is saved for backward: the forward passes ran without grad mode, or "
                      "nothing in them needs a gradient. Checkpointing has no effect here peak "));
  CHECK_THAT(text, !Catch::Contains("segments") && !Catch::Contains("could lower"));
}

TEST_CASE("explain: saved and never asked for is no use of checkpointing either") {
  Job job(kCpu);
  job.with_backward = false;
  const Explanation why = explained(job);
  CHECK(why.plain.with_gradients);
  CHECK_FALSE((why.plain.backward || why.recomputed));
  CHECK_THAT(
      test::one_line(planner::text_of(why)),
      Catch::Contains("no effect no backward pass asks for what the forward passes save; run them without "
                      "grad mode. Checkpointing has no effect here peak "));
}

TEST_CASE("explain: alternatives by their peaks, against the job in question") {
  const Job job(kCpu);
  Job idle(kCpu);
  idle.grad_mode = idle.with_backward = false;
  planner::ExplainOptions options;
  options.recompute = recompute;
  options.recomputes = true;
  const auto plainly = [](std::string_view, const ModuleFn& fn, Tensors&& in) { return fn(std::move(in)); };
  options.alternatives = {{"plain", [&] { job(plainly); }}, {"idle", [&] { idle(plainly); }}};
  const Explanation why = planner::explain(kCpu, job, options);
  CHECK(&why.job() == &*why.recomputed);
  REQUIRE(why.alternatives.size() == 2);
  CHECK(why.alternatives[0].name == "idle");
  CHECK(why.alternatives[1].peak.peak.bytes == highest(why.plain.plan.device).peak.bytes);
}

TEST_CASE("explain: other holders, tensors made within, several inputs, and parameters only") {
  const auto job = [](const Run& run) {
    at::Tensor weight;
    {
      const OwnerScope owner(Category::parameters, "weight");
      weight = at::ones({kBatch, kWidth}).requires_grad_(true);
    }
    const at::Tensor a = at::ones({kBatch, kWidth}), b = at::ones({kBatch, kWidth});
    const PhaseScope phase("forward");
    // a * weight saves both, a from outside; the sum saves nothing; a product of two views of one result.
    Tensors x = run("scale", [&](Tensors&& in) { return Tensors{in[0] * weight, in[1] + weight}; }, {a, b});
    x = run(
        "square", [](Tensors&& in) { return Tensors{in[0] * in[1]}; }, std::move(x));
    x = run(
        "only_weight", [&](Tensors&& in) { return Tensors{in[0] + weight.detach() * weight.sum()}; },
        std::move(x));
    const at::Tensor loss = at::sigmoid(x[0]).sum();
    x.clear();
    const PhaseScope backward("backward");
    loss.backward();
  };
  planner::ExplainOptions options;
  options.recompute = recompute;
  const auto segments = by_path(planner::explain(kCpu, job, options));
  CHECK(segments.at("scale").reason ==
        "all that it saves is an input; another input, which comes from outside, is saved by nobody: "
        "splitting here "
        "keeps one tensor more");
  CHECK(segments.at("square").reason == "all that it saves are inputs: nothing is let go");
  CHECK(segments.at("only_weight").reason ==
        "it saves parameters only, which are there anyway; its own input, the result of square, is saved by "
        "nobody: splitting here keeps one tensor more");
}

TEST_CASE("explain: an exception leaves no watch behind") {
  planner::ExplainOptions options;
  const auto throws = [](const Run& run) {
    run("bad", [](Tensors&&) -> Tensors { throw std::runtime_error("as it should"); }, {at::ones({2})});
  };
  CHECK_THROWS_WITH(planner::explain(kCpu, throws, options), "as it should");
  CHECK(job_observer() == nullptr);
  CHECK(explained(Job(kCpu)).plain.saved == 5 * kActivation);
}

TEST_CASE("a second watch of a job is refused, and the first stays") {
  struct Silent final : JobObserver {
    void enter(std::string_view, const Tensors&) override {}
    void leave(const Tensors*) override {}
    void kept(uint64_t, const at::Tensor&) override {}
    void asked_for(uint64_t) override {}
    void let_go(uint64_t) override {}
    void born(const MemoryBlock&) override {}
    void parameter(const MemoryBlock&, std::string_view) override {}
  };
  Silent first, second;
  {
    const JobObserverGuard guard(first);
    CHECK_THROWS_AS(JobObserverGuard(second), c10::Error);
    CHECK(job_observer() == &first);
  }
  CHECK(job_observer() == nullptr);
}
