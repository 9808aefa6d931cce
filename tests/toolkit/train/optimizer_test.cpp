// AdamW, clipping and the learning rate against their formulas in float64.
#include "toolkit/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dtk/planner/planned_group.h>

#include <cmath>
#include <numbers>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/train/lr_schedule.h"

using namespace dtk;

namespace {

/// Tensors that are in memory, which the result shares.
std::vector<StoredTensor> as_stored(const std::vector<NamedTensor>& tensors) {
  std::vector<StoredTensor> stored;
  for (const NamedTensor& entry : tensors) {
    stored.push_back({entry.name, entry.tensor.scalar_type(), entry.tensor.sizes().vec(),
                      [tensor = entry.tensor] { return tensor; }});
  }
  return stored;
}

std::vector<std::pair<std::string, at::Tensor>> two_parameters() {
  return {{"a", at::tensor({1.0f, -2.0f}).requires_grad_(true)},
          {"fixed", at::ones({3})},
          {"b", at::tensor({0.5f}).requires_grad_(true)}};
}

void set_gradients(const std::vector<std::pair<std::string, at::Tensor>>& parameters, float scale) {
  parameters[0].second.mutable_grad() = at::tensor({3.0f, 0.0f}) * scale;
  parameters[2].second.mutable_grad() = at::tensor({4.0f}) * scale;
}

// One parameter of AdamW by hand: gradients are divided by max(1, norm / clip).
struct Reference {
  double weight, m = 0, v = 0;
  void step(const OptimizerOptions& o, double lr, int t, double gradient) {
    weight *= 1 - lr * o.weight_decay;
    m = o.beta1 * m + (1 - o.beta1) * gradient;
    v = o.beta2 * v + (1 - o.beta2) * gradient * gradient;
    const double mean = m / (1 - std::pow(o.beta1, t)), square = v / (1 - std::pow(o.beta2, t));
    weight -= lr * mean / (std::sqrt(square) + o.eps);
  }
};

}  // namespace

TEST_CASE("updates follow AdamW's formula, with the global norm clipped") {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  options.clip = 1.0;
  const auto parameters = two_parameters();
  AdamW adamw(options, parameters);
  Reference a{1.0}, b{0.5};
  const float scales[] = {1.0f, 0.1f, 2.0f};  // norms 5, 0.5, 10: clipped, not clipped, clipped
  for (int t = 1; t <= 3; ++t) {
    const double scale = scales[t - 1], norm = 5 * scale;
    set_gradients(parameters, scales[t - 1]);
    adamw.step(0.01 * t);
    CHECK(adamw.gradient_norm().item<double>() == Approx(norm));
    const double divisor = std::max(1.0, (norm + 1e-6) / options.clip);
    a.step(options, 0.01 * t, t, 3 * scale / divisor);
    b.step(options, 0.01 * t, t, 4 * scale / divisor);
    adamw.release_gradients();
  }
  CHECK(parameters[0].second[0].item<double>() == Approx(a.weight).epsilon(1e-6));
  CHECK(parameters[2].second[0].item<double>() == Approx(b.weight).epsilon(1e-6));
  CHECK_FALSE(parameters[0].second.grad().defined());
  CHECK(adamw.stopped().item<float>() == 0);
}

TEST_CASE("norms and biases do not decay where matrices alone do, whatever their rate") {
  OptimizerOptions options;
  options.lr = 0.1;
  options.clip = 0;
  options.weight_decay = 0.5;
  options.decays = Decays::matrices;
  options.rates = {"head: 0.2"};
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const std::string module : {"body", "head"}) {
    parameters.emplace_back(module + ".weight", at::ones({2, 2}).requires_grad_());
    parameters.emplace_back(module + ".bias", at::ones({2}).requires_grad_());
  }
  AdamW adamw(options, parameters);
  for (const auto& [name, parameter] : parameters) parameter.mutable_grad() = at::zeros_like(parameter);
  adamw.step(0.1);
  const auto value = [&](size_t i) { return parameters[i].second.flatten()[0].item<double>(); };
  CHECK(value(0) == Approx(1 - 0.1 * 0.5));
  CHECK(value(1) == 1);
  CHECK(value(2) == Approx(1 - 0.2 * 0.5));
  CHECK(value(3) == 1);
  options.decays = Decays::all;
  AdamW all(options, parameters);
  for (const auto& [name, parameter] : parameters) parameter.mutable_grad() = at::zeros_like(parameter);
  all.step(0.1);
  CHECK(value(1) == Approx(1 - 0.1 * 0.5));
}

TEST_CASE(
    "parameters may have a rate of their own, which follows the schedule; all else has the common one") {
  OptimizerOptions options;
  options.lr = 0.1;
  options.clip = 0;
  options.rates = {"a: 0.05"};
  const auto parameters = two_parameters();
  AdamW adamw(options, parameters);
  Reference a{1.0}, b{0.5};
  for (int t = 1; t <= 3; ++t) {
    set_gradients(parameters, 1.0f);
    adamw.step(0.1 / t);
    a.step(options, 0.05 / t, t, 3);
    b.step(options, 0.1 / t, t, 4);
    adamw.release_gradients();
  }
  CHECK(parameters[0].second[0].item<double>() == Approx(a.weight).epsilon(1e-6));
  CHECK(parameters[2].second[0].item<double>() == Approx(b.weight).epsilon(1e-6));
  const auto refusal = [&](const std::vector<std::string>& rates) {
    options.rates = rates;
    return test::error_text<ConfigError>([&] { AdamW refused(options, two_parameters()); });
  };
  CHECK(refusal({"a 0.05"}) ==
        "optimizer.rates: \"a 0.05\" is no pattern with a rate above 0; write for example "
        "\"blocks.0: 2e-5\"");
  CHECK(refusal({"a: 0"}) ==
        "optimizer.rates: \"a: 0\" is no pattern with a rate above 0; write for example "
        "\"blocks.0: 2e-5\"");
  CHECK(refusal({"c: 1"}) ==
        "optimizer.rates: \"c: 1\" is of no parameter that is trained; the nearest are a, b");
  CHECK(refusal({"a: 1", "*: 2"}) ==
        "optimizer.rates: both \"a: 1\" and \"*: 2\" are of a; let each parameter have "
        "one rate");
}

TEST_CASE("the global norm has the bits of one thread's, whatever the number of threads") {
  at::manual_seed(1);
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<at::Tensor> norms;
  for (int64_t size : {1, 7, 300, 40'000, 90'001, 5}) {
    const at::Tensor parameter = at::zeros({size}).requires_grad_(true);
    parameter.mutable_grad() = at::randn({size});
    norms.push_back(parameter.grad().norm());
    parameters.emplace_back("p" + std::to_string(size), parameter);
  }
  const float expected = at::stack(norms).norm().item<float>();
  OptimizerOptions options;
  options.clip = 0;  // clipping would change the gradients
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 5, 16}) {
    at::set_num_threads(count);
    AdamW adamw(options, parameters);
    adamw.step(0.1);
    INFO(count << " threads");
    CHECK(adamw.gradient_norm().item<float>() == expected);
  }
  at::set_num_threads(threads);
}

TEST_CASE("a non-finite gradient in any one tensor stops the update") {
  for (const size_t bad : {0, 3, 8}) {
    std::vector<std::pair<std::string, at::Tensor>> parameters;
    for (size_t i = 0; i < 9; ++i) {
      const at::Tensor parameter = at::ones({4}).requires_grad_(true);
      parameter.mutable_grad() = at::ones({4});
      if (i == bad) parameter.mutable_grad()[2] = NAN;
      parameters.emplace_back("p" + std::to_string(i), parameter);
    }
    AdamW adamw({}, parameters);
    adamw.step(0.1);
    INFO("tensor " << bad);
    CHECK(adamw.stopped().item<float>() == 1);
    CHECK(std::isnan(adamw.gradient_norm().item<float>()));
    for (const auto& [name, parameter] : parameters) CHECK(at::equal(parameter.detach(), at::ones({4})));
  }
}

TEST_CASE("without clipping a step that is not measured updates alike and leaves the norm") {
  OptimizerOptions options;
  options.clip = 0;
  const auto parameters = two_parameters(), others = two_parameters();
  AdamW measured(options, parameters), unmeasured(options, others);
  for (const float scale : {1.0f, 0.5f, 3.0f}) {
    set_gradients(parameters, scale);
    set_gradients(others, scale);
    measured.step(0.1);
    unmeasured.step(0.1, /*measured=*/scale == 0.5f);
  }
  for (size_t i = 0; i < parameters.size(); ++i)
    CHECK(at::equal(parameters[i].second.detach(), others[i].second.detach()));
  CHECK(measured.gradient_norm().item<float>() == 15);
  CHECK(unmeasured.gradient_norm().item<float>() == 2.5);
  unmeasured.look_back();
  CHECK(unmeasured.stopped().item<float>() == 0);
}

TEST_CASE("what is not finite in a step that was not measured is seen by looking back, however late") {
  for (const double beta1 : {0.0, 0.9}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      OptimizerOptions options;
      options.clip = 0;
      options.beta1 = beta1;
      const auto parameters = two_parameters();
      AdamW adamw(options, parameters);
      CAPTURE(beta1, bad);
      set_gradients(parameters, bad);
      adamw.step(0.1, /*measured=*/false);
      for (int i = 0; i < 50; ++i) {
        set_gradients(parameters, 1.0f);
        adamw.step(0.1, /*measured=*/false);
      }
      CHECK(adamw.stopped().item<float>() == 0);
      adamw.look_back();
      CHECK(adamw.stopped().item<float>() == 1);
    }
  }
}

TEST_CASE("with clipping every step is measured") {
  const auto parameters = two_parameters();
  AdamW adamw({}, parameters);
  set_gradients(parameters, NAN);
  adamw.step(0.1, /*measured=*/false);
  CHECK(adamw.stopped().item<float>() == 1);
  CHECK(at::equal(parameters[0].second.detach(), at::tensor({1.0f, -2.0f})));
}

TEST_CASE("a non-finite gradient stops this and every later update") {
  const auto parameters = two_parameters();
  AdamW adamw({}, parameters);
  set_gradients(parameters, INFINITY);
  adamw.step(0.1);
  CHECK(adamw.stopped().item<float>() == 1);
  set_gradients(parameters, 1.0f);
  adamw.step(0.1);
  CHECK(at::equal(parameters[0].second.detach(), at::tensor({1.0f, -2.0f})));
  for (const NamedTensor& entry : adamw.state()) {
    INFO(entry.name);
    CHECK(entry.tensor.count_nonzero().item<int64_t>() == 0);
  }
}

TEST_CASE("a missing gradient and a foreign state are refused") {
  const auto parameters = two_parameters();
  AdamW adamw({}, parameters);
  parameters[0].second.mutable_grad() = at::zeros({2});
  CHECK_THROWS_WITH(adamw.step(0.1), "AdamW: parameter b got no gradient in this step");
  std::vector<NamedTensor> state = adamw.state();
  state.pop_back();
  state[0].tensor = at::zeros({3});
  state.push_back({"exp_avg.c", at::zeros({1})});
  CHECK_THROWS_WITH(
      adamw.restore(as_stored(state)),
      "optimizer state does not fit this model\n  missing: step\n  of another shape: exp_avg.a ([3], not "
      "[2])\n  unknown: exp_avg.c");
}

TEST_CASE("the learning rate warms up linearly and ends at the final fraction") {
  RunConfig config;
  config.train.steps = 100;
  config.optimizer.lr = 2.0;
  config.schedule.warmup = 4;
  config.schedule.final = 0.1;
  CHECK(learning_rate(config, {.step = 0}) == Approx(0.5));
  CHECK(learning_rate(config, {.step = 3}) ==
        Approx(2.0 * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * 0.03)))));
  CHECK(learning_rate(config, {.step = 50}) == Approx(2.0 * (0.1 + 0.9 * 0.5)));
  CHECK(learning_rate(config, {.step = 100}) == Approx(0.2));
  config.schedule.kind = ScheduleKind::constant;
  CHECK(learning_rate(config, {.step = 100}) == 2.0);
  CHECK(learning_rate(config, {.step = 1}) == 1.0);
}

TEST_CASE("progress is the largest of steps, epochs and seconds, never beyond one") {
  TrainOptions train;
  train.steps = 100;
  CHECK(run_progress(train, {.step = 25, .samples = 1000, .samples_per_epoch = 10, .seconds = 1e9}) == 0.25);
  train.seconds = 10.0;
  CHECK(run_progress(train, {.step = 25, .seconds = 5.0}) == 0.5);
  CHECK(run_progress(train, {.step = 75, .seconds = 5.0}) == 0.75);
  CHECK(run_progress(train, {.step = 101, .seconds = 5.0}) == 1.0);
  train.epochs = 4;
  CHECK(run_progress(train, {.step = 75, .samples = 36, .samples_per_epoch = 10, .seconds = 5.0}) == 0.9);
  CHECK(run_progress(train, {.step = 75, .samples = 10, .samples_per_epoch = 10, .seconds = 5.0}) == 0.75);
  CHECK(run_progress(train, {.step = 75, .samples = 44, .samples_per_epoch = 10, .seconds = 5.0}) == 1.0);
}

TEST_CASE(
    "a rank that has nothing of what is trained takes part in a step, and one that has a part has moments of "
    "it") {
  const at::Tensor parameter = at::ones({100}).requires_grad_();
  for (const int rank : {0, 1, 2}) {  // two cells of 64 elements
    policies::Shards shards(planner::planned_group(rank, 3), {{"a", parameter}});
    OptimizerOptions options;
    options.clip = 1;
    AdamW adamw(options, shards, NotFinite::stop);
    const at::Tensor& own = shards.own()[0].second;
    CHECK(own.numel() == (rank == 0 ? 64 : rank == 1 ? 36 : 0));
    CHECK(adamw.state()[0].tensor.numel() == own.numel());
    own.mutable_grad() = at::ones({own.numel()});
    adamw.step(0.1);
    CHECK(adamw.gradient_norm().item<double>() == Approx(std::sqrt(own.numel())));
    CHECK((own.numel() == 0 || own[0].item<float>() < 1));
    adamw.look_back();
    CHECK(adamw.stopped().item<float>() == 0);
  }
}
