#include "judging.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <tuple>

namespace dtk::judging {
namespace {

constexpr int64_t judged_at_once = 500;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[200];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace

const std::array<const char*, class_count> class_names = {
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};

Prediction predict(JudgeNet& net, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> features, classes;
  for (const at::Tensor& some : images.split(judged_at_once)) {
    const JudgeOutput output = net.forward(some.clamp(-1, 1), /*training=*/false);
    features.push_back(output.features.to(at::kDouble));
    classes.push_back(output.logits.argmax(1));
  }
  return {at::cat(features), at::cat(classes)};
}

double accuracy(const at::Tensor& classes, const at::Tensor& labels) {
  return classes.eq(labels).to(at::kDouble).mean().item<double>();
}

std::array<ClassCount, class_count> count_by_class(const at::Tensor& classes, const at::Tensor& labels) {
  const at::Tensor asked = labels.bincount({}, class_count);
  const at::Tensor right = labels.masked_select(classes.eq(labels)).bincount({}, class_count);
  std::array<ClassCount, class_count> counts;
  for (int64_t label = 0; label < class_count; ++label) {
    counts[static_cast<size_t>(label)] = {right[label].item<int64_t>(), asked[label].item<int64_t>()};
  }
  return counts;
}

Judge::Judge(JudgeNet net, LabelledImages test_set)
    : net_(std::move(net)), test_set_(std::move(test_set)), predicted_(predict(net_, test_set_.images)) {
  const at::Tensor variances = std::get<0>(at::var_mean(predicted_.features, 0));
  scale_ = std::sqrt(total_variance / variances.sum().item<double>());
  predicted_.features.mul_(scale_);
  real_ = feature_statistics(predicted_.features);
}

double Judge::distance_among_real(int64_t count) const {
  const int64_t rest = predicted_.features.size(0) - count;
  return frechet_distance(feature_statistics(predicted_.features.narrow(0, 0, count)),
                          feature_statistics(predicted_.features.narrow(0, count, rest)));
}

Judge::Score Judge::score(const LabelledImages& samples) {
  const Prediction predicted = predict(net_, samples.images);
  Score score;
  score.accuracy = accuracy(predicted.classes, samples.labels);
  score.distance = frechet_distance(feature_statistics(predicted.features * scale_), real_);
  score.samples = samples.labels.size(0);
  score.classes = count_by_class(predicted.classes, samples.labels);
  return score;
}

std::vector<std::string> missed_bounds(const Judge::Score& score, const Bounds& bounds) {
  std::vector<std::string> missed;
  if (bounds.min_accuracy && !(score.accuracy >= *bounds.min_accuracy)) {
    missed.push_back(
        format("accuracy is %.4f; at least %.4f is wanted", score.accuracy, *bounds.min_accuracy));
  }
  if (bounds.max_distance && !(score.distance <= *bounds.max_distance)) {
    missed.push_back(
        format("the Fréchet distance is %.2f; at most %.2f is wanted", score.distance, *bounds.max_distance));
  }
  return missed;
}

std::string report(const Judge::Score& score, double own_accuracy) {
  std::string text = "class asked for   right / asked\n";
  for (size_t label = 0; label < class_names.size(); ++label) {
    const ClassCount& count = score.classes[label];
    const double share =
        count.asked > 0 ? static_cast<double>(count.right) / static_cast<double>(count.asked) : 0;
    text += format("  %zu %-12s %6lld / %-6lld", label, class_names[label],
                   static_cast<long long>(count.right), static_cast<long long>(count.asked));
    text += count.asked > 0 ? format(" %5.1f %%\n", 100 * share) : " not asked for\n";
  }
  text += format("accuracy: %.1f %% of %lld samples are in the class they were asked for (chance: 10 %%)\n",
                 100 * score.accuracy, static_cast<long long>(score.samples));
  text += format("Fréchet distance of 64 features to the real test images: %.2f\n", score.distance);
  text += format("the judge's own accuracy on the real test images: %.2f %%\n", 100 * own_accuracy);
  return text + summary(score, own_accuracy) + "\n";
}

std::string summary(const Judge::Score& score, double own_accuracy) {
  return format("judge: accuracy %.3f fd %.1f samples %lld judge_accuracy %.3f", score.accuracy,
                score.distance, static_cast<long long>(score.samples), own_accuracy);
}

}  // namespace dtk::judging
