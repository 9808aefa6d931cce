#include "judging/frechet.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/error_text.h"

using dtk::judging::feature_statistics;
using dtk::judging::FeatureStatistics;
using dtk::judging::frechet_distance;
using dtk::test::error_text;

namespace {

at::Tensor normal_features(int64_t count, int64_t width, uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor mix = at::empty({width, width}, at::kDouble).normal_(0, 1, generator);
  return at::matmul(at::empty({count, width}, at::kDouble).normal_(0, 1, generator), mix);
}

FeatureStatistics diagonal(const std::vector<double>& mean, const std::vector<double>& variances) {
  return {at::tensor(mean, at::kDouble), at::diag(at::tensor(variances, at::kDouble))};
}

}  // namespace

TEST_CASE("frechet: mean and unbiased covariance of a few features by hand") {
  const at::Tensor features = at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 9.0F}).reshape({3, 2});
  const FeatureStatistics statistics = feature_statistics(features);
  CHECK(statistics.mean.scalar_type() == at::kDouble);
  CHECK(at::allclose(statistics.mean, at::tensor({3.0, 5.0})));
  CHECK(at::allclose(statistics.covariance, at::tensor({4.0, 7.0, 7.0, 13.0}).reshape({2, 2})));
}

TEST_CASE("frechet: Gaussians with diagonal covariance have (s1 - s2)^2 and (m1 - m2)^2 an axis") {
  const FeatureStatistics a = diagonal({0, 1, 2}, {1, 4, 9});
  const FeatureStatistics b = diagonal({0, 3, -1}, {16, 4, 0});
  CHECK(frechet_distance(a, b) == Approx(4 + 9 + (1 - 4) * (1 - 4) + 0 + 9).epsilon(1e-12));
  CHECK(frechet_distance(b, a) == Approx(frechet_distance(a, b)).epsilon(1e-12));
}

// For 2 x 2 matrices tr(sqrt(M)) = sqrt(tr M + 2 sqrt(det M)), and C1^(1/2) C2 C1^(1/2) has trace and
// determinant of C1 C2.
TEST_CASE("frechet: covariances that do not commute, against the closed form for two features") {
  const auto matrix = [](std::vector<double> values) {
    return at::tensor(values, at::kDouble).reshape({2, 2});
  };
  const FeatureStatistics a{at::zeros({2}, at::kDouble), matrix({2, 1, 1, 3})};
  const FeatureStatistics b{at::zeros({2}, at::kDouble), matrix({5, -2, -2, 1})};
  const double trace = 2 * 5 + 2 * (1 * -2) + 3 * 1;  // of C1 C2
  const double determinant = (2 * 3 - 1 * 1) * (5 * 1 - 2 * 2);
  const double expected = 2 + 3 + 5 + 1 - 2 * std::sqrt(trace + 2 * std::sqrt(determinant));
  CHECK(frechet_distance(a, b) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("frechet: identical sets have distance 0, a shift by d has |d|^2") {
  const at::Tensor features = normal_features(200, 64, 3);
  const FeatureStatistics statistics = feature_statistics(features);
  CHECK(frechet_distance(statistics, statistics) == Approx(0).margin(1e-8));

  const at::Tensor shift = at::linspace(-1, 2, 64, at::kDouble);
  const double expected = shift.dot(shift).item<double>();
  CHECK(frechet_distance(statistics, feature_statistics(features + shift)) == Approx(expected).epsilon(1e-9));
}

TEST_CASE("frechet: features scaled by k are (k - 1)^2 of the total variance away") {
  const at::Tensor features = normal_features(500, 16, 4);
  const at::Tensor centred = features - features.mean(0);
  const FeatureStatistics a = feature_statistics(centred);
  const double variance = a.covariance.trace().item<double>();
  CHECK(frechet_distance(a, feature_statistics(centred * 3)) == Approx(4 * variance).epsilon(1e-9));
}

TEST_CASE("frechet: fewer samples than features, and a feature that never fires, are allowed") {
  at::Tensor features = normal_features(10, 64, 5);
  features.select(1, 7).zero_();
  const FeatureStatistics statistics = feature_statistics(features);
  CHECK(frechet_distance(statistics, statistics) == Approx(0).margin(1e-5));
  CHECK(frechet_distance(statistics, feature_statistics(features + 1)) == Approx(64).epsilon(1e-5));
}

TEST_CASE("frechet: features of another shape or not finite are refused") {
  const auto message = [](const at::Tensor& features) {
    return error_text<std::invalid_argument>([&] { feature_statistics(features); });
  };
  CHECK(message(at::zeros({1, 3})) ==
        "feature_statistics: features are Float [1, 3]; allowed: floating (N, D), N at least 2");
  CHECK(message(at::zeros({6}, at::kLong)) ==
        "feature_statistics: features are Long [6]; allowed: floating (N, D), N at least 2");
  CHECK(message(at::full({2, 2}, std::numeric_limits<double>::quiet_NaN())) ==
        "feature_statistics: some features are not finite");
}
