// The Fréchet distance between two sets of feature vectors, each taken as a Gaussian.
#pragma once
#include <ATen/core/Tensor.h>

namespace dtk::judging {

struct FeatureStatistics {
  at::Tensor mean;        // (D), float64
  at::Tensor covariance;  // (D, D), float64, unbiased
};

/// features (N, D) of any floating dtype, N at least 2; computed in float64. Throws std::invalid_argument for
/// another shape or features that are not finite.
FeatureStatistics feature_statistics(const at::Tensor& features);

/// |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^(1/2) C2 C1^(1/2))^(1/2)). Symmetric; 0 for equal statistics up to
/// rounding, and never below 0. A few samples estimate a covariance badly and raise it: compare distances of
/// equally many samples only.
double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);

}  // namespace dtk::judging
