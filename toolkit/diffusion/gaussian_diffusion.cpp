#include "toolkit/diffusion/gaussian_diffusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace dtk {
namespace {

std::vector<double> linear_betas(int64_t steps) {
  const double scale = 1000.0 / static_cast<double>(steps), first = scale * 1e-4, last = scale * 0.02;
  const double stride = (last - first) / static_cast<double>(steps - 1);
  std::vector<double> betas;
  for (int64_t i = 0; i < steps; ++i) betas.push_back(static_cast<double>(i) * stride + first);
  betas.back() = last;
  return betas;
}

std::vector<double> cosine_betas(int64_t steps) {
  const auto alpha_cumprod = [&](int64_t i) {
    const double time = static_cast<double>(i) / static_cast<double>(steps);
    const double cosine = std::cos((time + 0.008) / 1.008 * std::numbers::pi / 2);
    return cosine * cosine;
  };
  std::vector<double> betas;
  for (int64_t i = 0; i < steps; ++i) {
    betas.push_back(std::min(1 - alpha_cumprod(i + 1) / alpha_cumprod(i), 0.999));
  }
  return betas;
}

// Over all dimensions but the first: (N, C, S, S) -> (N).
at::Tensor mean_of_each(const at::Tensor& values) {
  return values.mean({1, 2, 3});
}

// KL divergence between normal distributions, in nats.
at::Tensor normal_kl(const at::Tensor& mean1, const at::Tensor& log_variance1, const at::Tensor& mean2,
                     const at::Tensor& log_variance2) {
  const at::Tensor ratio = at::exp(log_variance1 - log_variance2);
  const at::Tensor distance = (mean1 - mean2).square() * at::exp(-log_variance2);
  return 0.5 * (log_variance2 - log_variance1 - 1.0 + ratio + distance);
}

// Page's approximation of the standard normal's distribution function.
at::Tensor normal_cdf(const at::Tensor& x) {
  const double scale = std::sqrt(2.0 / std::numbers::pi);
  return 0.5 * (1.0 + at::tanh(scale * (x + 0.044715 * x.pow(3))));
}

at::Tensor log_at_least(const at::Tensor& probability) {
  return at::log(at::clamp(probability, 1e-12));
}

// In nats, of values that stand for bins of width 2/255; the outermost bins reach to infinity.
at::Tensor discretized_log_likelihood(const at::Tensor& x, const at::Tensor& mean,
                                      const at::Tensor& log_scale) {
  const at::Tensor centered = x - mean;
  const at::Tensor inverse = at::exp(-log_scale);
  const at::Tensor below_upper = normal_cdf(inverse * (centered + 1.0 / 255.0));
  const at::Tensor below_lower = normal_cdf(inverse * (centered - 1.0 / 255.0));
  const at::Tensor first = log_at_least(below_upper);
  const at::Tensor last = log_at_least(1.0 - below_lower);
  const at::Tensor inner = log_at_least(below_upper - below_lower);
  return at::where(x < -0.999, first, at::where(x > 0.999, last, inner));
}

}  // namespace

std::vector<double> diffusion_betas(BetaKind kind, int64_t steps) {
  return kind == BetaKind::linear ? linear_betas(steps) : cosine_betas(steps);
}

GaussianTables::GaussianTables(std::vector<double> given) : betas(std::move(given)) {
  if (static_cast<int64_t>(betas.size()) < kMinDiffusionSteps) {
    throw std::invalid_argument("a diffusion process needs at least two steps");
  }
  double product = 1;
  for (const double beta : betas) {
    if (!(beta > 0 && beta < 1))
      throw std::invalid_argument("a β of a diffusion process is outside of (0, 1)");
    alphas_cumprod_prev.push_back(product);
    product *= 1 - beta;
    alphas_cumprod.push_back(product);
  }
  for (size_t t = 0; t < betas.size(); ++t) {
    const double noise = 1 - alphas_cumprod[t], noise_before = 1 - alphas_cumprod_prev[t];
    posterior_variance.push_back(betas[t] * noise_before / noise);
    posterior_mean_coef1.push_back(betas[t] * std::sqrt(alphas_cumprod_prev[t]) / noise);
    posterior_mean_coef2.push_back(noise_before * std::sqrt(1 - betas[t]) / noise);
  }
  for (const double variance : posterior_variance)
    posterior_log_variance_clipped.push_back(std::log(variance));
  posterior_log_variance_clipped[0] = posterior_log_variance_clipped[1];
}

GaussianTables respaced(const GaussianTables& tables, const std::vector<int64_t>& kept) {
  std::vector<double> betas;
  double before = 1;
  for (const int64_t step : kept) {
    const double now = tables.alphas_cumprod.at(static_cast<size_t>(step));
    betas.push_back(1 - now / before);
    before = now;
  }
  return GaussianTables(std::move(betas));
}

GaussianTables training_process(BetaKind kind, int64_t steps) {
  std::vector<int64_t> all(static_cast<size_t>(steps));
  std::iota(all.begin(), all.end(), 0);
  return respaced(GaussianTables(diffusion_betas(kind, steps)), all);
}

// ---- coefficients of steps ----

class GaussianDiffusion::Rows {
 public:
  /// `like` says the floating type in which the coefficients are applied.
  Rows(const at::Tensor& rows, const at::Tensor& t, const at::Tensor& like)
      : rows_(at::index_select(rows, 0, t)), type_(like.scalar_type()) {}

  /// (N, 1, 1, 1)
  at::Tensor operator[](Column column) const { return broadcast(precise(column)); }
  /// (N, 1), in float64: for what is computed of several coefficients.
  at::Tensor precise(Column column) const { return rows_.narrow(1, column, 1); }
  at::Tensor broadcast(const at::Tensor& value) const { return value.to(type_).view({-1, 1, 1, 1}); }

 private:
  const at::Tensor rows_;  // (N, kColumns)
  const c10::ScalarType type_;
};

GaussianDiffusion::GaussianDiffusion(const GaussianTables& tables, Prediction prediction, bool learn_sigma,
                                     c10::Device device)
    : prediction_(prediction), learn_sigma_(learn_sigma) {
  if (prediction == Prediction::velocity) {
    throw std::invalid_argument("a Gaussian diffusion predicts no velocity");
  }
  const size_t steps = tables.betas.size();
  std::vector<double> rows(steps * kColumns);
  for (size_t t = 0; t < steps; ++t) {
    double* const row = &rows[t * kColumns];
    const double alpha = tables.alphas_cumprod[t];
    row[kAlphaCumprod] = alpha;
    row[kAlphaCumprodPrev] = tables.alphas_cumprod_prev[t];
    row[kSqrtAlphaCumprod] = std::sqrt(alpha);
    row[kSqrtOneMinusAlphaCumprod] = std::sqrt(1 - alpha);
    row[kPosteriorMeanX0] = tables.posterior_mean_coef1[t];
    row[kPosteriorMeanXt] = tables.posterior_mean_coef2[t];
    row[kLogVarianceLow] = tables.posterior_log_variance_clipped[t];
    row[kLogVarianceHigh] = std::log(tables.betas[t]);
    row[kLogVarianceFixed] = t > 0 ? std::log(tables.betas[t]) : tables.posterior_log_variance_clipped[0];
  }
  rows_ = at::tensor(rows, at::kDouble).view({-1, kColumns}).to(device);
}

// ---- training ----

at::Tensor GaussianDiffusion::q_sample(const at::Tensor& x0, const at::Tensor& t,
                                       const at::Tensor& noise) const {
  const Rows row(rows_, t, x0);
  return row[kSqrtAlphaCumprod] * x0 + row[kSqrtOneMinusAlphaCumprod] * noise;
}

at::Tensor GaussianDiffusion::target(const at::Tensor& x0, const at::Tensor& noise, const Rows& row) const {
  if (prediction_ == Prediction::epsilon) return noise;
  if (prediction_ == Prediction::x0) return x0;
  return row[kSqrtAlphaCumprod] * noise - row[kSqrtOneMinusAlphaCumprod] * x0;
}

at::Tensor GaussianDiffusion::Losses::total() const {
  return vb.defined() ? mse + vb : mse;
}

GaussianDiffusion::Losses GaussianDiffusion::losses(const at::Tensor& output, const at::Tensor& x0,
                                                    const at::Tensor& x_t, const at::Tensor& t,
                                                    const at::Tensor& noise) const {
  const Rows row(rows_, t, x0);
  const at::Tensor predicted = output.narrow(1, 0, x0.size(1));
  Losses losses;
  losses.mse = mean_of_each((target(x0, noise, row) - predicted).square());
  if (!learn_sigma_) return losses;
  Step model;
  model.x0 = x0_from(output.detach(), x_t, row, /*clip=*/false);
  model.mean = posterior_mean(model.x0, x_t, row);
  model.log_variance = log_variance(output, x_t, row);
  losses.vb = variational_bound(model, x0, x_t, t, row);
  return losses;
}

at::Tensor GaussianDiffusion::variational_bound(const Step& model, const at::Tensor& x0,
                                                const at::Tensor& x_t, const at::Tensor& t,
                                                const Rows& row) const {
  const at::Tensor true_mean = posterior_mean(x0, x_t, row);
  const at::Tensor kl = normal_kl(true_mean, row[kLogVarianceLow], model.mean, model.log_variance);
  const at::Tensor likelihood = discretized_log_likelihood(x0, model.mean, 0.5 * model.log_variance);
  const at::Tensor nats = at::where(t == 0, -mean_of_each(likelihood), mean_of_each(kl));
  return nats / std::numbers::ln2;
}

// ---- what an output says ----

at::Tensor GaussianDiffusion::x0_from(const at::Tensor& output, const at::Tensor& x_t, const Rows& row,
                                      bool clip) const {
  at::Tensor x0 = output.narrow(1, 0, x_t.size(1));
  if (prediction_ == Prediction::epsilon) {
    x0 = (x_t - row[kSqrtOneMinusAlphaCumprod] * x0) / row[kSqrtAlphaCumprod];
  } else if (prediction_ == Prediction::v) {
    x0 = row[kSqrtAlphaCumprod] * x_t - row[kSqrtOneMinusAlphaCumprod] * x0;
  }
  return clip ? at::clamp(x0, -1.0, 1.0) : x0;
}

at::Tensor GaussianDiffusion::epsilon_from(const at::Tensor& x0, const at::Tensor& x_t,
                                           const Rows& row) const {
  return (x_t - row[kSqrtAlphaCumprod] * x0) / row[kSqrtOneMinusAlphaCumprod];
}

at::Tensor GaussianDiffusion::posterior_mean(const at::Tensor& x0, const at::Tensor& x_t,
                                             const Rows& row) const {
  return row[kPosteriorMeanX0] * x0 + row[kPosteriorMeanXt] * x_t;
}

// Of `like`'s shape.
at::Tensor GaussianDiffusion::log_variance(const at::Tensor& output, const at::Tensor& like,
                                           const Rows& row) const {
  if (!learn_sigma_) return row[kLogVarianceFixed].expand_as(like);
  const int64_t channels = like.size(1);
  const at::Tensor high = (output.narrow(1, channels, channels) + 1) / 2;
  return high * row[kLogVarianceHigh] + (1 - high) * row[kLogVarianceLow];
}

// ---- sampling ----

GaussianDiffusion::Step GaussianDiffusion::p_mean_variance(const at::Tensor& output, const at::Tensor& x_t,
                                                           const at::Tensor& t, bool clip_x0) const {
  const Rows row(rows_, t, x_t);
  Step step;
  step.x0 = x0_from(output, x_t, row, clip_x0);
  step.mean = posterior_mean(step.x0, x_t, row);
  step.log_variance = log_variance(output, x_t, row);
  return step;
}

at::Tensor GaussianDiffusion::ddpm_step(const at::Tensor& output, const at::Tensor& x_t, const at::Tensor& t,
                                        const at::Tensor& noise, bool clip_x0) const {
  const Step step = p_mean_variance(output, x_t, t, clip_x0);
  const at::Tensor not_last = (t != 0).to(x_t.scalar_type()).view({-1, 1, 1, 1});
  return step.mean + not_last * at::exp(0.5 * step.log_variance) * noise;
}

at::Tensor GaussianDiffusion::ddim_step(const at::Tensor& output, const at::Tensor& x_t, const at::Tensor& t,
                                        double eta, const at::Tensor& noise, bool clip_x0) const {
  const Rows row(rows_, t, x_t);
  const at::Tensor x0 = x0_from(output, x_t, row, clip_x0);
  const at::Tensor now = row.precise(kAlphaCumprod), before = row.precise(kAlphaCumprodPrev);
  // 0 at t = 0, where ᾱ' is 1.
  const at::Tensor variance = eta * eta * ((1 - before) / (1 - now)) * (1 - now / before);
  const at::Tensor mean = row.broadcast(before.sqrt()) * x0 +
                          row.broadcast((1 - before - variance).sqrt()) * epsilon_from(x0, x_t, row);
  return noise.defined() ? mean + row.broadcast(variance.sqrt()) * noise : mean;
}

}  // namespace dtk
