// The Gaussian diffusion against the original's numbers, and its three predictions against each other.
#include "toolkit/diffusion/gaussian_diffusion.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/fixture.h"
#include "toolkit/diffusion/respacing.h"

using namespace dtk;

namespace {

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

// The original's numbers, and how far from them an implementation may be.
class Golden {
 public:
  Golden() : tensors_(test::read_fixture("diffusion_golden")) {
    std::ifstream(std::string(DTK_FIXTURES) + "/diffusion_golden.json") >> notes_;
  }

  at::Tensor at(const std::string& name, at::ScalarType type) const { return tensors_.at(name).to(type); }
  at::Tensor index(const std::string& name) const { return tensors_.at(name); }
  bool has(const std::string& name) const { return tensors_.has(name); }

  // In float64 1e-12 of the largest value; in fp32 ten times the original's own error, at least 1e-6 of it.
  void check(const std::string& name, const at::Tensor& value) const {
    INFO(name << " in " << value.scalar_type());
    const at::Tensor& wanted = tensors_.at(name + ".fp64");
    REQUIRE(value.sizes() == wanted.sizes());
    const auto& figures =
        notes_["fp32_vs_fp64"].contains(name) ? notes_["fp32_vs_fp64"][name] : nlohmann::json();
    REQUIRE((value.scalar_type() == at::kDouble || !figures.is_null()));
    const double tolerance =
        value.scalar_type() == at::kDouble
            ? 1e-12 * largest(wanted)
            : std::max(10 * figures["max_abs_error_fp32_vs_fp64"].get<double>(), 1e-6 * largest(wanted));
    CHECK(largest(value.to(at::kDouble) - wanted) <= tolerance);
    ++checked_;
  }

  void check_table(const std::string& name, const std::vector<double>& values) const {
    INFO(name);
    const at::Tensor& wanted = tensors_.at(name);
    REQUIRE(static_cast<size_t>(wanted.numel()) == values.size());
    const double* const entries = wanted.const_data_ptr<double>();
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(values[i] - entries[i]) - 1e-12 * std::abs(entries[i]));
    }
    CHECK(worst <= 0);
  }

  int checked() const { return checked_; }

 private:
  test::Fixture tensors_;
  nlohmann::json notes_;
  mutable int checked_ = 0;
};

GaussianTables original() {
  return training_process(BetaKind::linear, 1000);
}

GaussianDiffusion process(Prediction prediction, bool learn_sigma) {
  return GaussianDiffusion(original(), prediction, learn_sigma, at::kCPU);
}

}  // namespace

TEST_CASE("tables: those of the original, whole and respaced") {
  const Golden golden;
  const auto check = [&](const std::string& prefix, const GaussianTables& tables) {
    golden.check_table(prefix + "betas", tables.betas);
    golden.check_table(prefix + "alphas_cumprod", tables.alphas_cumprod);
    golden.check_table(prefix + "alphas_cumprod_prev", tables.alphas_cumprod_prev);
    golden.check_table(prefix + "posterior_variance", tables.posterior_variance);
    golden.check_table(prefix + "posterior_log_variance_clipped", tables.posterior_log_variance_clipped);
    golden.check_table(prefix + "posterior_mean_coef1", tables.posterior_mean_coef1);
    golden.check_table(prefix + "posterior_mean_coef2", tables.posterior_mean_coef2);
  };
  const GaussianTables whole(diffusion_betas(BetaKind::linear, 1000));
  check("table.", original());
  for (const std::string text : {"10", "250", "ddim50"}) {
    check("respaced." + text + ".", respaced(whole, respaced_steps(text, 1000)));
  }
  check("respaced.10_15_20.", respaced(whole, respaced_steps("10,15,20", 1000)));
}

TEST_CASE("tables: cosine betas follow the squared cosine until they are limited") {
  const GaussianTables tables(diffusion_betas(BetaKind::cosine, 1000));
  const auto wanted = [](double time) {
    const double cosine = std::cos((time + 0.008) / 1.008 * std::numbers::pi / 2);
    return cosine * cosine;
  };
  for (size_t t = 0; t < 998; ++t) {
    INFO(t);
    const double time = static_cast<double>(t + 1) / 1000;
    REQUIRE(tables.alphas_cumprod[t] == Approx(wanted(time) / wanted(0)).epsilon(1e-9));
  }
  CHECK(tables.betas.back() == 0.999);
}

TEST_CASE("tables: fewest steps, and what no process can have") {
  CHECK(GaussianTables(diffusion_betas(BetaKind::linear, kMinLinearSteps)).betas.back() < 1);
  CHECK_THROWS_WITH(GaussianTables(diffusion_betas(BetaKind::linear, kMinLinearSteps - 1)),
                    "a β of a diffusion process is outside of (0, 1)");
  CHECK_NOTHROW(GaussianTables(diffusion_betas(BetaKind::cosine, 2)));
  CHECK_THROWS_WITH(GaussianTables({0.5}), "a diffusion process needs at least two steps");
  CHECK_THROWS_WITH(process(Prediction::velocity, false), "a Gaussian diffusion predicts no velocity");
}

TEST_CASE("x_t, the losses of each sample and their gradient are the original's") {
  const Golden golden;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const at::Tensor x0 = golden.at("in.x_start", type), noise = golden.at("in.noise", type);
    const at::Tensor t = golden.index("in.t");
    for (const bool learn_sigma : {true, false}) {
      const GaussianDiffusion diffusion = process(Prediction::epsilon, learn_sigma);
      const std::string prefix = learn_sigma ? "loss_hybrid." : "loss_mse.";
      at::Tensor output = golden.at("in.model_output", type).narrow(1, 0, learn_sigma ? 8 : 4).clone();
      output.set_requires_grad(true);
      const at::Tensor x_t = diffusion.q_sample(x0, t, noise);
      golden.check("q_sample", x_t);
      const auto losses = diffusion.losses(output, x0, x_t, t, noise);
      golden.check(prefix + "mse", losses.mse.detach());
      if (learn_sigma) golden.check(prefix + "vb", losses.vb.detach());
      CHECK(losses.vb.defined() == learn_sigma);
      golden.check(prefix + "loss", losses.total().detach());
      torch::autograd::backward({losses.total().mean()}, {});
      golden.check(prefix + "grad_model_output", output.grad());
    }
  }
  CHECK(golden.checked() == 2 * (2 + 4 + 3));
}

TEST_CASE("the steps of ddpm and ddim are the original's") {
  const Golden golden;
  struct Case {
    const char* name;
    const char* respacing;
    bool learn_sigma, clip;
  };
  const GaussianTables whole(diffusion_betas(BetaKind::linear, 1000));
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const Case& one : {Case{"full", "1000", true, false}, Case{"full_clipped", "1000", true, true},
                            Case{"fixed_variance", "1000", false, false}, Case{"10", "10", true, false},
                            Case{"250", "250", true, false}, Case{"ddim50", "ddim50", true, false}}) {
      const std::string prefix = std::string("step.") + one.name + ".";
      const std::vector<int64_t> kept = respaced_steps(one.respacing, 1000);
      const GaussianDiffusion diffusion(respaced(whole, kept), Prediction::epsilon, one.learn_sigma,
                                        at::kCPU);
      const at::Tensor t = golden.index(prefix + "t");
      CHECK(at::equal(at::tensor(kept).index_select(0, t), golden.index(prefix + "model_t")));
      const at::Tensor output = golden.at("in.model_output", type).narrow(1, 0, one.learn_sigma ? 8 : 4);
      const at::Tensor x_t = golden.at("in.x_t", type), noise = golden.at("in.step_noise", type);
      const auto step = diffusion.p_mean_variance(output, x_t, t, one.clip);
      golden.check(prefix + "p.mean", step.mean);
      golden.check(prefix + "p.log_variance", step.log_variance);
      golden.check(prefix + "p.pred_xstart", step.x0);
      const auto check_if_stored = [&](const std::string& name, const at::Tensor& value) {
        if (golden.has(prefix + name + ".fp64")) golden.check(prefix + name, value);
      };
      check_if_stored("ddpm", diffusion.ddpm_step(output, x_t, t, noise, one.clip));
      check_if_stored("ddim_eta0", diffusion.ddim_step(output, x_t, t, 0.0, {}, one.clip));
      check_if_stored("ddim_eta0.7", diffusion.ddim_step(output, x_t, t, 0.7, noise, one.clip));
    }
  }
  CHECK(golden.checked() == 2 * 31);  // of the stored entries 6 times p.*, 5 ddpm, 8 of ddim
}

namespace {

// One x_t, and outputs that say the same of it as ε, as v and as x_0.
struct SameKnowledge {
  at::Tensor t, x0, noise, x_t, variance_part;
  std::map<Prediction, at::Tensor> predicted;  // off the truth by as much

  explicit SameKnowledge(double error) {
    const at::Generator generator = policies::make_generator(at::kCPU, 5);
    const auto draw = [&] { return at::randn({6, 2, 4, 4}, generator, at::kDouble); };
    t = at::tensor({0L, 1L, 17L, 500L, 998L, 999L});
    x0 = draw().clamp(-1, 1), noise = draw(), variance_part = draw();
    x_t = process(Prediction::epsilon, false).q_sample(x0, t, noise);
    const at::Tensor epsilon = noise + error * draw();
    at::Tensor alpha = at::tensor(original().alphas_cumprod, at::kDouble);
    alpha = alpha.index_select(0, t).view({-1, 1, 1, 1});
    const at::Tensor image = (x_t - (1 - alpha).sqrt() * epsilon) / alpha.sqrt();
    predicted[Prediction::epsilon] = epsilon;
    predicted[Prediction::x0] = image;
    predicted[Prediction::v] = alpha.sqrt() * epsilon - (1 - alpha).sqrt() * image;
  }

  at::Tensor output(Prediction prediction) const {
    return at::cat({predicted.at(prediction), variance_part}, 1);
  }
};

void check_close(const at::Tensor& a, const at::Tensor& b) {
  CHECK(largest(a - b) <= 1e-11 * largest(b));
}

}  // namespace

TEST_CASE("v and x0 that say the same as an ε give the same steps") {
  const SameKnowledge same(0.3);
  const GaussianDiffusion reference = process(Prediction::epsilon, true);
  const at::Tensor epsilon = same.output(Prediction::epsilon);
  for (const Prediction prediction : {Prediction::v, Prediction::x0}) {
    const GaussianDiffusion other = process(prediction, true);
    const at::Tensor output = same.output(prediction);
    for (const bool clip : {false, true}) {
      const auto a = other.p_mean_variance(output, same.x_t, same.t, clip);
      const auto b = reference.p_mean_variance(epsilon, same.x_t, same.t, clip);
      check_close(a.mean, b.mean);
      check_close(a.x0, b.x0);
      check_close(a.log_variance, b.log_variance);
      check_close(other.ddpm_step(output, same.x_t, same.t, same.noise, clip),
                  reference.ddpm_step(epsilon, same.x_t, same.t, same.noise, clip));
      check_close(other.ddim_step(output, same.x_t, same.t, 0.5, same.noise, clip),
                  reference.ddim_step(epsilon, same.x_t, same.t, 0.5, same.noise, clip));
    }
  }
}

TEST_CASE("the losses of the three predictions are one, times ᾱ and 1 - ᾱ") {
  const SameKnowledge same(0.3);
  const auto losses = [&](Prediction prediction) {
    return process(prediction, true).losses(same.output(prediction), same.x0, same.x_t, same.t, same.noise);
  };
  const auto of_epsilon = losses(Prediction::epsilon), of_v = losses(Prediction::v),
             of_x0 = losses(Prediction::x0);
  const at::Tensor alpha = at::tensor(original().alphas_cumprod, at::kDouble).index_select(0, same.t);
  CHECK(of_v.mse.min().item<double>() > 0);
  CHECK(at::allclose(of_epsilon.mse, alpha * of_v.mse, 1e-9, 0));
  CHECK(at::allclose(of_x0.mse, (1 - alpha) * of_v.mse, 1e-9, 0));
  CHECK(at::allclose(of_epsilon.vb, of_v.vb, 1e-9, 0));
  CHECK(at::allclose(of_epsilon.vb, of_x0.vb, 1e-9, 0));
  const SameKnowledge truth(0.0);
  for (const Prediction prediction : {Prediction::epsilon, Prediction::v, Prediction::x0}) {
    const auto zero =
        process(prediction, true).losses(truth.output(prediction), truth.x0, truth.x_t, truth.t, truth.noise);
    CHECK(zero.mse.max().item<double>() < 1e-20);
  }
}

TEST_CASE("the variational term trains the variance alone, for every prediction") {
  const SameKnowledge same(0.3);
  for (const Prediction prediction : {Prediction::epsilon, Prediction::v, Prediction::x0}) {
    at::Tensor output = same.output(prediction).clone();
    output.set_requires_grad(true);
    const auto losses = process(prediction, true).losses(output, same.x0, same.x_t, same.t, same.noise);
    torch::autograd::backward({losses.vb.mean()}, {});
    CHECK(largest(output.grad().narrow(1, 0, 2)) == 0);
    CHECK(output.grad().narrow(1, 2, 2).ne(0).all().item<bool>());
  }
}
