// What the judge says of images.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "frechet.h"
#include "judge_net.h"
#include "labelled_images.h"

namespace dtk::judging {

/// Gives 500 real test images a distance of about 2.3 to the others.
inline constexpr double total_variance = 150;

/// Class names of Fashion-MNIST, by label.
extern const std::array<const char*, class_count> class_names;

struct Prediction {
  at::Tensor features;  // (N, 64), float64
  at::Tensor classes;   // (N), int64
};

/// images (N, 1, 28, 28); values outside [-1, 1] are taken as the nearest, as an image file shows them.
Prediction predict(JudgeNet& net, const at::Tensor& images);

/// Share of `classes` that equals `labels`, in [0, 1]; both (N).
double accuracy(const at::Tensor& classes, const at::Tensor& labels);

struct ClassCount {
  int64_t right = 0;  // samples that the judge puts into the class they were asked for
  int64_t asked = 0;
};

/// By class asked for; classes and labels (N).
std::array<ClassCount, class_count> count_by_class(const at::Tensor& classes, const at::Tensor& labels);

/// The judge with what it makes of the real test set.
///
/// The size of a net's features, and with it every Fréchet distance, depends on how the net was trained. So
/// that distances of different judges compare, features are scaled to one total variance over the real test
/// set, total_variance.
class Judge {
 public:
  Judge(JudgeNet net, LabelledImages test_set);

  const JudgeNet& net() const { return net_; }
  const LabelledImages& test_set() const { return test_set_; }
  /// On the real test images, in [0, 1].
  double own_accuracy() const { return accuracy(predicted_.classes, test_set_.labels); }
  /// Fréchet distance of the first `count` test images to all others: what real images score.
  double distance_among_real(int64_t count) const;

  struct Score {
    double accuracy = 0;  // share of samples that the judge puts into the class they were asked for
    double distance = 0;  // Fréchet distance of the features to those of the whole test set
    int64_t samples = 0;
    std::array<ClassCount, class_count> classes;
  };
  Score score(const LabelledImages& samples);

 private:
  JudgeNet net_;
  LabelledImages test_set_;
  Prediction predicted_;    // of the test set
  FeatureStatistics real_;  // of the test set
  double scale_;            // of the net's features
};

struct Bounds {
  std::optional<double> min_accuracy;
  std::optional<double> max_distance;
};

/// One message for each bound that is missed.
std::vector<std::string> missed_bounds(const Judge::Score& score, const Bounds& bounds);

/// A readable block that ends with summary().
std::string report(const Judge::Score& score, double own_accuracy);

/// The line for programs: "judge: accuracy 0.947 fd 11.6 samples 500 judge_accuracy 0.921".
std::string summary(const Judge::Score& score, double own_accuracy);

}  // namespace dtk::judging
