// Training objectives on models whose answer is known.
#include "toolkit/diffusion/objective.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>

#include "support/catch.h"
#include "toolkit/diffusion/gaussian_diffusion.h"

using namespace dtk;

namespace {

/// What a model that outputs zero was given.
struct Seen {
  at::Tensor x, t, y, loss;
};

Seen see(const DiffusionOptions& options, const at::Tensor& x0, const at::Tensor& y, uint64_t seed) {
  Seen seen;
  const auto model = [&](at::Tensor x, at::Tensor t, at::Tensor label) {
    seen.x = x, seen.t = t, seen.y = label;
    return at::zeros_like(x);
  };
  const auto objective = make_objective(options, /*learn_sigma=*/false, at::kCPU);
  seen.loss = objective->loss(model, x0, y, policies::make_generator(at::kCPU, seed));
  return seen;
}

}  // namespace

TEST_CASE("rectified flow: the mean squared error to noise - x0 at x_t, with the time in thousandths") {
  const at::Generator same = policies::make_generator(at::kCPU, 4);
  const at::Tensor x0 = at::randn({6, 2, 3, 3});
  const at::Tensor y = at::arange(6);
  const Seen seen = see({}, x0, y, 4);
  const at::Tensor t = at::sigmoid(at::randn({6}, same)), noise = at::randn({6, 2, 3, 3}, same);
  const at::Tensor shape = t.view({6, 1, 1, 1});
  CHECK(at::allclose(seen.x, (1 - shape) * x0 + shape * noise, 1e-5, 1e-6));
  CHECK(at::allclose(seen.t, 1000 * t));
  CHECK(at::equal(seen.y, y));
  CHECK(seen.loss.item<double>() == Approx((noise - x0).pow(2).mean().item<double>()));
  CHECK(seen.loss.dim() == 0);
}

TEST_CASE("rectified flow: both time distributions stay in (0, 1) and differ") {
  const auto times = [](FlowTime kind) {
    const Seen seen = see({.time = kind}, at::zeros({20000, 1, 1, 1}), at::zeros({20000}, at::kLong), 1);
    return seen.t / 1000;
  };
  const at::Tensor uniform = times(FlowTime::uniform), normal = times(FlowTime::logit_normal);
  for (const at::Tensor& t : {uniform, normal}) {
    CHECK(t.min().item<double>() >= 0.0);
    CHECK(t.max().item<double>() < 1.0);
    CHECK(t.mean().item<double>() == Approx(0.5).margin(0.01));
  }
  CHECK(uniform.std().item<double>() == Approx(0.2887).margin(0.01));
  CHECK(normal.std().item<double>() == Approx(0.2080).margin(0.01));  // logit-normal(0, 1)
}

TEST_CASE("epsilon, v and x0: the error of their own target at x_t, with the step as the time") {
  const at::Tensor x0 = at::randn({6, 2, 3, 3});
  const at::Tensor y = at::arange(6);
  for (const Prediction objective : {Prediction::epsilon, Prediction::v, Prediction::x0}) {
    for (const BetaKind betas : {BetaKind::linear, BetaKind::cosine}) {
      INFO(policies::text_of(objective) << ", " << policies::text_of(betas));
      const DiffusionOptions options = {.objective = objective, .steps = 100, .betas = betas};
      const Seen seen = see(options, x0, y, 4);
      const at::Generator same = policies::make_generator(at::kCPU, 4);
      const at::Tensor t = at::randint(100, {6}, same, at::kLong), noise = at::randn({6, 2, 3, 3}, same);
      CHECK(at::equal(seen.t, t.to(at::kFloat)));
      CHECK(at::equal(seen.y, y));
      const GaussianTables tables(diffusion_betas(betas, 100));
      const at::Tensor alpha =
          at::tensor(tables.alphas_cumprod).index_select(0, t).to(at::kFloat).view({6, 1, 1, 1});
      CHECK(at::allclose(seen.x, alpha.sqrt() * x0 + (1 - alpha).sqrt() * noise, 1e-4, 1e-5));
      const at::Tensor target = objective == Prediction::epsilon ? noise
                                : objective == Prediction::x0
                                    ? x0
                                    : alpha.sqrt() * noise - (1 - alpha).sqrt() * x0;
      CHECK(seen.loss.item<double>() == Approx(target.pow(2).mean().item<double>()).epsilon(1e-4));
      CHECK(seen.loss.dim() == 0);
    }
  }
}

TEST_CASE("every step of the diffusion is drawn, all about as often") {
  const DiffusionOptions options = {.objective = Prediction::epsilon, .steps = 50};
  const Seen seen = see(options, at::zeros({50000, 1, 1, 1}), at::zeros({50000}, at::kLong), 1);
  const at::Tensor counts = at::bincount(seen.t.to(at::kLong), {}, 50);
  CHECK(counts.numel() == 50);
  CHECK(counts.min().item<int64_t>() > 850);  // 1000 expected, standard deviation 31
  CHECK(counts.max().item<int64_t>() < 1150);
}

TEST_CASE("a learned variance adds the variational term to the loss") {
  const DiffusionOptions options = {.objective = Prediction::epsilon};
  const at::Tensor x0 = at::rand({8, 1, 4, 4}), y = at::zeros({8}, at::kLong);
  const auto loss = [&](bool learn_sigma) {
    const auto model = [&](const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
      return at::zeros({8, learn_sigma ? 2 : 1, 4, 4}, x.options());
    };
    return make_objective(options, learn_sigma, at::kCPU)
        ->loss(model, x0, y, policies::make_generator(at::kCPU, 3));
  };
  CHECK(loss(true).item<double>() > loss(false).item<double>() + 1e-4);
}

TEST_CASE("losses are fp32, also of an output that autocast left in bf16") {
  const at::Tensor x0 = at::randn({4, 2, 4, 4}), y = at::zeros({4}, at::kLong);
  const policies::AutocastGuard autocast(at::kCPU, /*enabled=*/true);
  for (const Prediction objective :
       {Prediction::velocity, Prediction::epsilon, Prediction::v, Prediction::x0}) {
    for (const bool learn_sigma : {false, true}) {
      if (learn_sigma && objective != Prediction::epsilon) continue;
      INFO(policies::text_of(objective) << ", learn_sigma = " << learn_sigma);
      const auto loss = [&](bool cast_beforehand) {
        const auto model = [&](const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
          const at::Tensor output =
              at::sin(learn_sigma ? at::cat({x, x * 0.7}, 1) : x * 1.3).to(at::kBFloat16);
          return cast_beforehand ? output.to(at::kFloat) : output;
        };
        return make_objective({.objective = objective}, learn_sigma, at::kCPU)
            ->loss(model, x0, y, policies::make_generator(at::kCPU, 3));
      };
      const at::Tensor seen = loss(false);
      CHECK(seen.scalar_type() == at::kFloat);
      CHECK(at::equal(seen, loss(true)));
    }
  }
}

TEST_CASE("the tables of a diffusion are counted under their own name") {
  const policies::CountingAllocatorGuard counting;
  const auto bytes = [] {
    const auto items = policies::cpu_accounts().live().items();
    const auto parameters = items.find(policies::Category::parameters);
    if (parameters == items.end()) return int64_t{0};
    const auto tables = parameters->second.find("diffusion tables");
    return tables == parameters->second.end() ? int64_t{0} : tables->second;
  };
  const int64_t before = policies::cpu_accounts().live_bytes();
  {
    const auto objective = make_objective({.objective = Prediction::v}, false, at::kCPU);
    CHECK(bytes() == 1000 * 72);
    CHECK(policies::cpu_accounts().live_bytes() == before + 1000 * 72);
  }
  CHECK(policies::cpu_accounts().live_bytes() == before);
}
