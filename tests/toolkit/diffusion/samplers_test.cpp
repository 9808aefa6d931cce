// Samplers on models whose answer is known.
#include "toolkit/diffusion/samplers.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <cmath>
#include <stdexcept>

#include "support/catch.h"
#include "toolkit/diffusion/gaussian_diffusion.h"
#include "toolkit/diffusion/respacing.h"

using namespace dtk;

namespace {

at::Tensor no_noise() {
  throw std::logic_error("this sampler draws nothing");
}

DrawNoise noise_of(const at::Generator& generator, const at::Tensor& like) {
  return [generator, like] { return at::randn(like.sizes(), generator, like.options()); };
}

struct Asked : SamplerOptions {
  int64_t steps = 0;
};

Asked steps_of(SamplerKind sampler, int64_t steps, double eta = 0) {
  return {{.sampler = sampler, .eta = eta}, steps};
}

std::unique_ptr<const Sampler> sampler_of(const DiffusionOptions& diffusion, const Asked& asked,
                                          bool learn_sigma = false) {
  return make_sampler(diffusion, asked, asked.steps, learn_sigma, at::kCPU);
}

at::Tensor draw(const DiffusionOptions& diffusion, const Asked& options, const Denoiser& model, at::Tensor x,
                const DrawNoise& noise = no_noise, bool learn_sigma = false) {
  const auto sampler = sampler_of(diffusion, options, learn_sigma);
  for (int64_t i = 0; i < sampler->steps(); ++i) x = sampler->step(i, model, x, at::Tensor(), noise);
  return x;
}

at::Tensor flow(SamplerKind sampler, int64_t steps, const Denoiser& model, const at::Tensor& noise) {
  return draw({}, steps_of(sampler, steps), model, noise);
}

/// What a model of images N(0, deviation²) outputs at its best; with deviation 0 all images are `image`.
class BestModel {
 public:
  BestModel(const DiffusionOptions& options, at::Tensor image, double deviation)
      : objective_(options.objective), image_(std::move(image)), variance_(deviation * deviation) {
    alphas_ = GaussianTables(diffusion_betas(options.betas, options.steps)).alphas_cumprod;
  }

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& t, const at::Tensor&) {
    times.push_back(t[0].item<double>());
    const double alpha = alphas_.at(static_cast<size_t>(times.back()));
    // The mean of x_0 given x_t.
    const double gain = std::sqrt(alpha) * variance_ / (alpha * variance_ + 1 - alpha);
    const at::Tensor x0 = image_ + gain * (x - std::sqrt(alpha) * image_);
    if (objective_ == Prediction::x0) return x0;
    const at::Tensor epsilon = (x - std::sqrt(alpha) * x0) / std::sqrt(1 - alpha);
    return objective_ == Prediction::epsilon ? epsilon
                                             : std::sqrt(alpha) * epsilon - std::sqrt(1 - alpha) * x0;
  }

  std::vector<double> times;

 private:
  const Prediction objective_;
  const at::Tensor image_;
  const double variance_;
  std::vector<double> alphas_;
};

}  // namespace

TEST_CASE("euler follows dx/dt = v from t = 1 to t = 0 in equal steps") {
  const at::Tensor noise = at::randn({2, 1, 2, 2}), target = at::randn({2, 1, 2, 2});
  std::vector<double> times;
  const auto straight = [&](at::Tensor, at::Tensor t, at::Tensor) {
    times.push_back(t[0].item<double>());
    return noise - target;
  };
  CHECK(at::allclose(flow(SamplerKind::euler, 5, straight, noise), target, 1e-5, 1e-6));
  REQUIRE(times.size() == 5);
  for (size_t i = 0; i < 5; ++i) CHECK(times[i] == Approx(1000.0 - 200.0 * static_cast<double>(i)));
}

TEST_CASE("heun evaluates both ends of a step, but not t = 0") {
  const at::Tensor noise = at::randn({2, 1, 2, 2}), target = at::randn({2, 1, 2, 2});
  std::vector<double> times;
  const auto straight = [&](at::Tensor, at::Tensor t, at::Tensor) {
    times.push_back(std::round(t[0].item<double>()));
    return noise - target;
  };
  CHECK(at::allclose(flow(SamplerKind::heun, 4, straight, noise), target, 1e-5, 1e-6));
  CHECK(times == std::vector<double>{1000, 750, 750, 500, 500, 250, 250});
}

TEST_CASE("the error of euler falls with the step, that of heun with its square") {
  // dx/dt = cos(3t)·x has the solution x(0) = x(1)·exp(-sin(3)/3).
  const at::Tensor noise = at::randn({2, 1, 2, 2}, at::kDouble);
  const auto growth = [](at::Tensor x, at::Tensor t, at::Tensor) {
    return at::cos(3 * t / 1000).view({-1, 1, 1, 1}) * x;
  };
  const at::Tensor exact = noise * std::exp(-std::sin(3.0) / 3);
  const auto error = [&](SamplerKind sampler, int64_t steps) {
    return (flow(sampler, steps, growth, noise) - exact).abs().max().item<double>();
  };
  for (const int64_t steps : {40, 80, 160}) {
    INFO(steps);
    CHECK(error(SamplerKind::euler, steps) / error(SamplerKind::euler, 2 * steps) == Approx(2).epsilon(0.05));
    CHECK(error(SamplerKind::heun, steps) / error(SamplerKind::heun, 2 * steps) == Approx(4).epsilon(0.05));
  }
  CHECK(error(SamplerKind::heun, 20) < error(SamplerKind::euler, 640));  // 39 evaluations against 640
}

TEST_CASE("ddpm and ddim come to the image of a model that knows one, from any noise and in any steps") {
  const at::Tensor image = at::randn({1, 2, 3, 3}), noise = at::randn({4, 2, 3, 3});
  for (const Prediction objective : {Prediction::epsilon, Prediction::v, Prediction::x0}) {
    for (const BetaKind betas : {BetaKind::linear, BetaKind::cosine}) {
      const DiffusionOptions diffusion = {.objective = objective, .betas = betas};
      for (const Asked& options : {steps_of(SamplerKind::ddpm, 20), steps_of(SamplerKind::ddim, 20),
                                   steps_of(SamplerKind::ddim, 20, 1.0)}) {
        INFO(policies::text_of(objective) << ", " << policies::text_of(betas) << ", "
                                          << policies::text_of(options.sampler) << ", " << options.eta);
        BestModel model(diffusion, image, 0.0);
        const at::Tensor x = draw(diffusion, options, std::ref(model), noise,
                                  noise_of(policies::make_generator(at::kCPU, 2), noise));
        CHECK((x - image).abs().max().item<double>() < 2e-3);  // ε of fp32 is multiplied by 1/√ᾱ
      }
    }
  }
}

TEST_CASE("the model is given the original steps, from the last to the first") {
  const at::Tensor noise = at::randn({2, 1, 2, 2});
  for (const std::string respacing : {"", "10,15,20", "ddim50"}) {
    INFO(respacing);
    const DiffusionOptions diffusion = {.objective = Prediction::v};
    Asked options = steps_of(SamplerKind::ddim, 30);
    if (!respacing.empty()) options.respacing = respacing;
    BestModel model(diffusion, at::zeros({1, 1, 2, 2}), 1.0);
    draw(diffusion, options, std::ref(model), noise);
    const auto kept = respaced_steps(respacing.empty() ? "30" : respacing, 1000);
    CHECK(model.times == std::vector<double>(kept.rbegin(), kept.rend()));
  }
}

TEST_CASE("ddpm and ddim draw the deviation of the images that the model knows") {
  const at::Tensor noise = at::randn({20000, 1, 1, 1}, policies::make_generator(at::kCPU, 8));
  const DiffusionOptions diffusion = {.objective = Prediction::epsilon};
  for (const Asked& options : {steps_of(SamplerKind::ddpm, 1000), steps_of(SamplerKind::ddim, 1000),
                               steps_of(SamplerKind::ddim, 1000, 1.0)}) {
    INFO(policies::text_of(options.sampler) << ", " << options.eta);
    BestModel model(diffusion, at::zeros({1, 1, 1, 1}), 0.5);
    const at::Tensor x = draw(diffusion, options, std::ref(model), noise,
                              noise_of(policies::make_generator(at::kCPU, 2), noise));
    CHECK(x.std().item<double>() == Approx(0.5).epsilon(0.03));
    CHECK(x.mean().item<double>() == Approx(0).margin(0.02));
  }
}

TEST_CASE("a learned variance decides how much noise ddpm adds") {
  const at::Tensor noise = at::randn({20000, 1, 1, 1}, policies::make_generator(at::kCPU, 8));
  const DiffusionOptions diffusion = {.objective = Prediction::x0};
  // One step from the end: the spread of x is what the variance of that step says.
  const auto spread = [&](double says) {
    const auto model = [&](const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
      return at::cat({at::zeros_like(x), at::full_like(x, says)}, 1);
    };
    const auto sampler = sampler_of(diffusion, steps_of(SamplerKind::ddpm, 2), true);
    const at::Tensor x = sampler->step(0, model, at::zeros_like(noise), {}, [&] { return noise; });
    return x.std().item<double>();
  };
  const GaussianTables tables =
      respaced(GaussianTables(diffusion_betas(BetaKind::linear, 1000)), respaced_steps("2", 1000));
  CHECK(spread(1.0) == Approx(std::sqrt(tables.betas[1])).epsilon(0.02));
  CHECK(spread(-1.0) == Approx(std::sqrt(tables.posterior_variance[1])).epsilon(0.02));
}

TEST_CASE("clip_x0 limits what a step rests on") {
  const at::Tensor noise = at::randn({4, 1, 2, 2});
  const DiffusionOptions diffusion = {.objective = Prediction::x0};
  const auto far = [](const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
    return at::full_like(x, 3.0);
  };
  for (const SamplerKind sampler : {SamplerKind::ddpm, SamplerKind::ddim}) {
    Asked options = steps_of(sampler, 5);
    const auto drawn = [&] {
      return draw(diffusion, options, far, noise, noise_of(policies::make_generator(at::kCPU, 2), noise));
    };
    CHECK(at::allclose(drawn(), at::full_like(noise, 3.0), 1e-3, 1e-3));
    options.clip_x0 = true;
    CHECK(at::allclose(drawn(), at::full_like(noise, 1.0), 1e-3, 1e-3));
  }
}

TEST_CASE("steps that no sampler has") {
  CHECK_THROWS_WITH(sampler_of({.objective = Prediction::v}, steps_of(SamplerKind::ddim, 2000)),
                    "the diffusion has 1000 steps, fewer than the 2000 asked of it");
  CHECK_THROWS_WITH(sampler_of({}, steps_of(SamplerKind::ddim, 25)),
                    "a Gaussian diffusion predicts no velocity");
}
