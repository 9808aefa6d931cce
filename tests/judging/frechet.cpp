#include "frechet.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

namespace dtk::judging {
namespace {

// Square root of a symmetric matrix without negative eigenvalues, but for those that rounding makes.
at::Tensor symmetric_root(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  const at::Tensor roots = values.clamp_min(0).sqrt();
  return at::matmul(vectors * roots, vectors.t());
}

}  // namespace

FeatureStatistics feature_statistics(const at::Tensor& features) {
  if (features.dim() != 2 || features.size(0) < 2 || !features.is_floating_point()) {
    throw std::invalid_argument(c10::str("feature_statistics: features are ", features.scalar_type(), " ",
                                         features.sizes(), "; allowed: floating (N, D), N at least 2"));
  }
  const at::Tensor values = features.to(at::kDouble);
  if (!values.isfinite().all().item<bool>()) {
    throw std::invalid_argument("feature_statistics: some features are not finite");
  }
  FeatureStatistics statistics;
  statistics.mean = values.mean(0);
  const at::Tensor centred = values - statistics.mean;
  statistics.covariance = at::matmul(centred.t(), centred) / static_cast<double>(values.size(0) - 1);
  return statistics;
}

double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b) {
  const at::Tensor shift = a.mean - b.mean;
  const at::Tensor root = symmetric_root(a.covariance);
  const at::Tensor product = at::matmul(at::matmul(root, b.covariance), root);
  // Rounding leaves it not quite symmetric, and linalg_eigh reads one triangle only.
  const at::Tensor values = std::get<0>(at::linalg_eigh((product + product.t()) / 2));
  const at::Tensor cross = values.clamp_min(0).sqrt().sum();
  const at::Tensor distance = shift.dot(shift) + a.covariance.trace() + b.covariance.trace() - 2 * cross;
  return std::max(0.0, distance.item<double>());
}

}  // namespace dtk::judging
