// Rectified flow and Euler's method on models whose answer is known.
#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <dtk/toolkit/diffusion.h>

#include "support/catch.h"

using namespace dtk;

TEST_CASE("the loss is the mean squared error to noise - x0 at x_t, with the time in thousandths") {
  const at::Generator a = policies::make_generator(at::kCPU, 4), b = policies::make_generator(at::kCPU, 4);
  const at::Tensor x0 = at::randn({6, 2, 3, 3});
  const at::Tensor y = at::arange(6);
  at::Tensor seen_x, seen_t, seen_y;
  const auto model = [&](at::Tensor x, at::Tensor t, at::Tensor label) {
    seen_x = x, seen_t = t, seen_y = label;
    return at::zeros_like(x);
  };
  const at::Tensor loss = rectified_flow_loss(model, x0, y, {}, a);
  const at::Tensor t = at::sigmoid(at::randn({6}, b)), noise = at::randn({6, 2, 3, 3}, b);
  const at::Tensor shape = t.view({6, 1, 1, 1});
  CHECK(at::allclose(seen_x, (1 - shape) * x0 + shape * noise, 1e-5, 1e-6));
  CHECK(at::allclose(seen_t, 1000 * t));
  CHECK(at::equal(seen_y, y));
  CHECK(loss.item<double>() == Approx((noise - x0).pow(2).mean().item<double>()));
  CHECK(loss.dim() == 0);
}

TEST_CASE("both time distributions stay in (0, 1) and differ") {
  const auto times = [](const std::string& kind) {
    at::Tensor seen;
    const auto model = [&](at::Tensor x, at::Tensor t, at::Tensor) {
      seen = t / 1000;
      return at::zeros_like(x);
    };
    rectified_flow_loss(model, at::zeros({20000, 1, 1, 1}), at::zeros({20000}, at::kLong),
                        {"rectified_flow", kind}, policies::make_generator(at::kCPU, 1));
    return seen;
  };
  const at::Tensor uniform = times("uniform"), normal = times("logit_normal");
  for (const at::Tensor& t : {uniform, normal}) {
    CHECK(t.min().item<double>() >= 0.0);
    CHECK(t.max().item<double>() < 1.0);
    CHECK(t.mean().item<double>() == Approx(0.5).margin(0.01));
  }
  CHECK(uniform.std().item<double>() == Approx(0.2887).margin(0.01));
  CHECK(normal.std().item<double>() == Approx(0.2080).margin(0.01));  // logit-normal(0, 1)
}

TEST_CASE("Euler's method follows dx/dt = v from t = 1 to t = 0 in equal steps") {
  const at::Tensor noise = at::randn({2, 1, 2, 2}), target = at::randn({2, 1, 2, 2});
  std::vector<double> times;
  const auto straight = [&](at::Tensor, at::Tensor t, at::Tensor) {
    times.push_back(t[0].item<double>());
    return noise - target;
  };
  CHECK(at::allclose(euler_sample(straight, noise, {}, 5), target, 1e-5, 1e-6));
  REQUIRE(times.size() == 5);
  for (size_t i = 0; i < 5; ++i) CHECK(times[i] == Approx(1000.0 - 200.0 * static_cast<double>(i)));
  // dx/dt = x has the solution x(0) = x(1) / e; the error falls with the step.
  const auto growth = [](at::Tensor x, at::Tensor, at::Tensor) { return x; };
  const at::Tensor exact = noise * std::exp(-1.0);
  const double coarse = (euler_sample(growth, noise, {}, 10) - exact).abs().max().item<double>();
  const double fine = (euler_sample(growth, noise, {}, 100) - exact).abs().max().item<double>();
  CHECK(fine < coarse / 8);
}
