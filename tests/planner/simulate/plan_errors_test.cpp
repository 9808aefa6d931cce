// What cannot be planned: each kind, by its exact text, on the simulated CUDA device and on the CPU of
// shapes.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/simulation.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <functional>
#include <string>

#include "support/catch.h"
#include "support/device/devices.h"

using namespace dtk;
using policies::ModulePathScope;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;
const char* const kNoValue =
    " reads a value, and a plan has none: what the job does next cannot be known; read what steers the job "
    "between "
    "steps with policies::values_sync()";
const char* const kShapeOfValues =
    " cannot be planned: the shape of its result depends on values, and a plan has none";

std::string error_of(c10::Device device, const std::function<void()>& job) {
  try {
    planner::simulate(device, [&](const planner::EndOfPlan&) { job(); });
  } catch (const planner::PlanError& error) {
    return error.what();
  }
  return "no error";
}

// `use` as a model's module would.
std::string error_in_model(c10::Device device, const std::function<void(const at::Tensor&)>& use) {
  return error_of(device, [&] {
    const at::Tensor x = at::ones({4, 3}, device);
    const ModulePathScope path("blocks.0");
    use(x);
  });
}

at::Tensor twice_kernel(const at::Tensor& x) {
  return x + x;
}
at::Tensor first_row_kernel(const at::Tensor& x) {
  return x.select(0, 0);
}

TORCH_LIBRARY(plan_test, m) {
  m.def("twice(Tensor x) -> Tensor");
  m.def("first_row(Tensor(a) x) -> Tensor(a)");
}
TORCH_LIBRARY_IMPL(plan_test, CPU, m) {
  m.impl("twice", &twice_kernel);
}

at::Tensor call(const char* name, const at::Tensor& x) {
  static auto& dispatcher = c10::Dispatcher::singleton();
  return dispatcher.findSchemaOrThrow(name, "").typed<at::Tensor(const at::Tensor&)>().call(x);
}

// Its backward looks for the non-zero gradients.
struct Picky : torch::autograd::Function<Picky> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    at::nonzero(gradients[0]);
    return gradients;
  }
};

}  // namespace

TEST_CASE("an operator without a shape kernel is named with the line that registers one") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const auto use = [](const at::Tensor& x) {
    const at::Tensor y = call("plan_test::twice", x);
    CHECK(y.sizes() == x.sizes());
  };
  CHECK(error_in_model(device, use) ==
        "plan_test::twice in blocks.0 cannot be planned: no shape kernel is registered; register one: "
        "TORCH_LIBRARY_IMPL(plan_test, Meta, m) with m.impl(\"twice\", ...)");
  torch::Library meta(torch::Library::IMPL, "plan_test", c10::DispatchKey::Meta, __FILE__, __LINE__);
  meta.impl("twice", &twice_kernel);
  CHECK(error_in_model(device, use) == "no error");
}

TEST_CASE("a view without a kernel of the simulated device is named with the line that registers one") {
  const auto use = [](const at::Tensor& x) {
    const at::Tensor y = call("plan_test::first_row", x);
    CHECK(y.is_alias_of(x));
  };
  CHECK(error_in_model(kCuda, use) ==
        "plan_test::first_row in blocks.0 cannot be planned: it makes a view and has no kernel of the "
        "simulated "
        "device; register one for every device: TORCH_LIBRARY_IMPL(plan_test, CompositeExplicitAutograd, m) "
        "with "
        "m.impl(\"first_row\", ...)");
  torch::Library all(torch::Library::IMPL, "plan_test", c10::DispatchKey::CompositeExplicitAutograd, __FILE__,
                     __LINE__);
  all.impl("first_row", &first_row_kernel);
  CHECK(error_in_model(kCuda, use) == "no error");
  CHECK(error_in_model(kCpu, use) == "no error");
}

TEST_CASE("a job for a device that places nothing there is refused, not planned as 0 bytes") {
  const auto on_cpu = [] { at::ones({3}); };
  CHECK(error_of(kCuda, on_cpu) ==
        "simulate: the job placed nothing on cuda:0, so that there is nothing to plan; make its model and "
        "tensors "
        "on that device, or plan it with simulate(\"cpu\", ...)");
  CHECK(error_of(kCpu, on_cpu) == "no error");
}

TEST_CASE("a model that reads a value is refused") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  CHECK(error_in_model(device, [](const at::Tensor& x) { x.sum().item<float>(); }) ==
        std::string("aten::item() in blocks.0") + kNoValue);
  CHECK(error_in_model(device, [](const at::Tensor& x) { at::equal(x, x + 1); }) ==
        std::string("aten::equal in blocks.0") + kNoValue);
}

TEST_CASE("a job whose step reads a value is refused with its phase") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  CHECK(error_of(device, [&] {
          const at::Tensor weight = at::ones({3}, device).requires_grad_();
          const policies::PhaseScope phase("train");
          for (double loss = 1; loss > 0.5;) loss = (weight * weight).sum().item<double>();
        }) == std::string("aten::item() outside of all modules, in phase train") + kNoValue);
}

TEST_CASE("a model that copies values to the host is refused unless they are only kept") {
  CHECK(error_in_model(kCuda, [](const at::Tensor& x) { x.to(at::kCPU); }) ==
        "aten::copy_ in blocks.0 copies values to the host, and a plan has none: what the job does next "
        "cannot be "
        "known; where the values are only kept or shown, hold a policies::HostCopyScope, and read what "
        "steers the "
        "job between steps with policies::values_sync()");
  CHECK(error_in_model(kCuda, [](const at::Tensor& x) {
          const policies::HostCopyScope kept;
          CHECK(x.to(at::kCPU).is_cpu());
        }) == "no error");
  CHECK(error_in_model(kCuda, [](const at::Tensor& x) { CHECK(policies::values_sync(x).size() == 12); }) ==
        "no error");
}

TEST_CASE(
    "an operator whose result's shape depends on values is refused, and the others of its kind are not") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  CHECK(error_in_model(device, [](const at::Tensor& x) { at::nonzero(x); }) ==
        std::string("aten::nonzero in blocks.0") + kShapeOfValues);
  CHECK(error_in_model(device, [](const at::Tensor& x) { at::masked_select(x, x > 0); }) ==
        std::string("aten::masked_select in blocks.0") + kShapeOfValues);
  // On CUDA a mask becomes indices first.
  CHECK(error_in_model(device, [](const at::Tensor& x) { x.index({x > 0}); }) ==
        std::string(device.is_cpu() ? "aten::index.Tensor" : "aten::nonzero") + " in blocks.0" +
            kShapeOfValues);
  CHECK(error_in_model(device, [](const at::Tensor& x) {
          const at::Tensor rows = at::zeros({2}, x.options().dtype(at::kLong));
          CHECK(x.index({rows}).sizes() == at::IntArrayRef({2, 3}));
        }) == "no error");
}

TEST_CASE("an error in backward names the module whose backward it is, on the engine's own thread too") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const auto run = [&](bool in_module) {
    return error_of(device, [&] {
      at::Tensor x = at::ones({4, 3}, device).requires_grad_();
      {
        const ModulePathScope path("blocks.0");
        x = x * 3;
      }
      if (in_module) {
        const ModulePathScope path("blocks.1");
        x = Picky::apply(x);
      } else {
        x = Picky::apply(x);
      }
      {
        const ModulePathScope path("blocks.2");
        x = x * 3;
      }
      const policies::PhaseScope phase("backward");
      torch::autograd::backward({x.sum()}, {});
    });
  };
  CHECK(run(true) == std::string("aten::nonzero in the backward of blocks.1") + kShapeOfValues);
  CHECK(run(false) ==
        std::string("aten::nonzero outside of all modules, in phase backward") + kShapeOfValues);
}

TEST_CASE("an error in what backward recomputes names the module and says so") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const policies::SavedTensorEngineGuard engine;
  CHECK(error_of(device, [&] {
          const at::Tensor x = at::ones({4, 3}, device).requires_grad_();
          const ModulePathScope path("blocks.1");
          const auto block = [](policies::Tensors&& inputs) {
            if (policies::recomputing()) at::nonzero(inputs[0]);
            return policies::Tensors{(inputs[0] * 2).sin()};
          };
          const at::Tensor y = policies::checkpoint("blocks.1", block, {x})[0];
          torch::autograd::backward({y.sum()}, {});
        }) == std::string("aten::nonzero in blocks.1, recomputed in backward") + kShapeOfValues);
}

TEST_CASE("an operator that CUDA has a kernel for is not taken apart into others") {
  planner::SimulationResult plan = planner::simulate(kCuda, [](const planner::EndOfPlan&) {
    const at::Tensor x = at::ones({2, 8, 4, 4}, kCuda), weight = at::ones({8}, kCuda);
    const policies::PhaseScope phase("norm");
    const auto results = at::native_group_norm(x, weight, weight, 2, 8, 16, 4, 1e-5);
    CHECK(std::get<1>(results).sizes() == at::IntArrayRef({2, 4}));
    const auto sums = at::_foreach_add({x, weight}, 1.0);
    CHECK(sums[1].sizes() == weight.sizes());
  });
  const int64_t x = 4 * 2 * 8 * 4 * 4, weight = 4 * 8, statistics = 2 * 4 * 2 * 4;
  CHECK(policies::highest(plan.device).name == "norm");
  CHECK(policies::highest(plan.device).peak.bytes == 2 * (x + weight) + x + statistics);
}

TEST_CASE("a simulation within another is refused, and the other goes on to the end") {
  bool went_on = false;
  const planner::SimulationResult plan = planner::simulate(kCuda, [&](const planner::EndOfPlan&) {
    const policies::PhaseScope phase("job");
    CHECK_THROWS_WITH(planner::simulate(kCuda, [](const planner::EndOfPlan&) {}),
                      Catch::Contains("a simulation is going on already"));
    policies::FoldableLoop passes("passes", 5);
    int64_t seen = 0;
    while (passes.next()) {
      const at::Tensor x = at::ones({4, 4}, kCuda);
      at::mm(x, x);
      ++seen;
    }
    went_on = policies::simulating() && seen < 5;  // those that repeat are left out, as without the refusal
    policies::step_done();
  });
  CHECK(went_on);
  CHECK(plan.steps.size() == 1);
  CHECK_FALSE(policies::simulating());
}
