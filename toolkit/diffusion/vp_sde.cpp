#include "toolkit/diffusion/vp_sde.h"

#include <ATen/ATen.h>

#include <cmath>

namespace dtk {

double VpSde::log_alpha(double t) const {
  return -0.25 * t * t * (beta1 - beta0) - 0.5 * t * beta0;
}

double VpSde::alpha(double t) const {
  return std::exp(log_alpha(t));
}

double VpSde::sigma(double t) const {
  return std::sqrt(-std::expm1(2 * log_alpha(t)));
}

double VpSde::lambda(double t) const {
  return log_alpha(t) - std::log(sigma(t));
}

// -log α = ½ log(1 + e^-2λ), a quadratic in t; its root in the form that does not cancel.
double VpSde::time(double lambda) const {
  const double doubled = std::fmax(-2 * lambda, 0.0) + std::log1p(std::exp(-std::fabs(2 * lambda)));
  const double q = 2 * (beta1 - beta0) * doubled;
  return q / ((std::sqrt(beta0 * beta0 + q) + beta0) * (beta1 - beta0));
}

at::Tensor VpSde::log_alpha(const at::Tensor& t) const {
  const at::Tensor slope = t * (-0.25 * (beta1 - beta0)) - 0.5 * beta0;
  return slope * t;
}

at::Tensor VpSde::alpha(const at::Tensor& t) const {
  return log_alpha(t).exp();
}

at::Tensor VpSde::sigma(const at::Tensor& t) const {
  return (2 * log_alpha(t)).expm1().neg().sqrt();
}

}  // namespace dtk
