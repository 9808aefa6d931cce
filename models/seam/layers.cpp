#include <ATen/ATen.h>
#include <dtk/models/layers.h>

#include <cmath>

namespace dtk::models {

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

at::Tensor time_features(const at::Tensor& t) {
  constexpr int64_t half = kTimeFeatures / 2;
  at::Tensor frequency = at::arange(half, t.options().dtype(at::kFloat));
  frequency = frequency * (-std::log(10000.0) / half);
  frequency = frequency.exp();
  at::Tensor angle = t.to(at::kFloat).unsqueeze(1) * frequency.unsqueeze(0);  // (N, 128)
  return at::cat({angle.cos(), angle.sin()}, 1);
}

}  // namespace dtk::models
