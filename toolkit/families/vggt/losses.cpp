#include "toolkit/families/vggt/losses.h"

#include <ATen/ATen.h>

#include <cmath>

namespace dtk::vggt {
namespace {

// Over what is valid; 0 where nothing is.
at::Tensor mean_of(const at::Tensor& values, const at::Tensor& valid) {
  return (values * valid).sum() / valid.sum().clamp_min(1);
}

at::Tensor gradient_loss(const at::Tensor& error, const at::Tensor& valid) {
  at::Tensor sum;
  for (const int64_t stride : {1, 2, 4}) {
    const auto coarse = [&](const at::Tensor& all) {
      return all.slice(2, 0, {}, stride).slice(3, 0, {}, stride);
    };
    const at::Tensor e = coarse(error), v = coarse(valid);
    for (const int64_t dim : {2, 3}) {
      if (e.size(dim) < 2) continue;
      const at::Tensor change = (e.slice(dim, 1) - e.slice(dim, 0, -1)).abs();
      const at::Tensor mean = mean_of(change, v.slice(dim, 1) * v.slice(dim, 0, -1));
      sum = sum.defined() ? sum + mean : mean;
    }
  }
  return sum.defined() ? sum / 3 : error.sum() * 0;
}

}  // namespace

at::Tensor camera_loss(const std::vector<at::Tensor>& rounds, const at::Tensor& wanted) {
  constexpr double kFade = 0.6, kLongest = 100;
  const auto count = static_cast<double>(rounds.size());
  at::Tensor sum;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const at::Tensor error = (rounds[i].to(at::kFloat) - wanted).abs();
    at::Tensor loss = error.slice(2, 0, 3).clamp_max(kLongest).mean() + error.slice(2, 3, 7).mean() +
                      error.slice(2, 7).mean() / 2;
    loss = loss * (std::pow(kFade, count - 1 - static_cast<double>(i)) / count);
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

at::Tensor depth_loss(const at::Tensor& depths, const at::Tensor& confidence, const at::Tensor& wanted,
                      const LossOptions& options) {
  const at::Tensor valid = wanted.gt(0).to(at::kFloat);
  const at::Tensor error = depths.to(at::kFloat) - wanted, sure = confidence.to(at::kFloat);
  const at::Tensor distance = error.abs();
  const at::Tensor each = sure * distance - sure.log() * options.confidence + distance;
  at::Tensor loss = mean_of(each, valid);
  if (options.gradient > 0) loss = loss + gradient_loss(error, valid) * options.gradient;
  return loss;
}

}  // namespace dtk::vggt
