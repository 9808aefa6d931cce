// The variance-preserving process against the original's numbers.
#include "toolkit/diffusion/vp_sde.h"

#include <ATen/ATen.h>

#include "support/diffusion_planner/golden.h"

using namespace dtk;
using test::OriginalNumbers;

TEST_CASE("vp_sde: α, σ, λ and the way back are the original's, in fp32 within its own error") {
  const OriginalNumbers golden;
  const VpSde sde;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const at::Tensor t = golden.at("schedule.t", type);
    golden.check("schedule.log_alpha", sde.log_alpha(t));
    golden.check("schedule.alpha", sde.alpha(t));
    golden.check("schedule.sde_mean", sde.alpha(t));
    golden.check("schedule.sigma", sde.sigma(t));
    golden.check("schedule.sde_std", sde.sigma(t));
  }
  std::vector<double> lambda, back;
  for (const at::Tensor& t : golden.at("schedule.t", at::kDouble).unbind()) {
    lambda.push_back(sde.lambda(t.item<double>()));
    back.push_back(sde.time(lambda.back()));
  }
  golden.check("schedule.lam", at::tensor(lambda, at::kDouble));
  golden.check("schedule.t_back", at::tensor(back, at::kDouble));
}

TEST_CASE("vp_sde: in fp32 nothing cancels where almost no noise is added") {
  const OriginalNumbers golden;
  const at::Tensor t = golden.at("schedule.t", at::kFloat);
  const at::Tensor error =
      VpSde().sigma(t).to(at::kDouble) / golden.at("schedule.sigma.fp64", at::kDouble) - 1;
  CHECK(test::largest(error) < 3e-7);  // the original's σ is off by 1e-4 of itself at t = 0.001
}

TEST_CASE("vp_sde: numbers and tensors agree, and time is the inverse of λ over its whole range") {
  const VpSde sde{.beta0 = 0.2, .beta1 = 15.0};
  for (const double t : {1e-4, 1e-3, 0.02, 0.3, 0.99, 1.0}) {
    const at::Tensor same = at::full({1}, t, at::kDouble);
    CHECK(sde.log_alpha(same).item<double>() == Approx(sde.log_alpha(t)).epsilon(1e-14));
    CHECK(sde.sigma(same).item<double>() == Approx(sde.sigma(t)).epsilon(1e-14));
    CHECK(sde.alpha(t) * sde.alpha(t) + sde.sigma(t) * sde.sigma(t) == Approx(1).epsilon(1e-14));
    CHECK(sde.time(sde.lambda(t)) == Approx(t).epsilon(1e-9));
  }
  CHECK(std::isfinite(sde.time(-400.0)));  // e^800 is none
}
