#include "controls.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "toolkit/data/loader.h"

namespace dtk::judging {
namespace {

constexpr uint64_t control_seed = 2;
constexpr int64_t count = 500;        // images of noise, and blurred
constexpr int64_t blur_side = 11;     // pixels: the mean over this square leaves a blob
constexpr double min_distance = 100;  // real images score below 3, good samples 10 to 20

LabelledImages with_shuffled_labels(const LabelledImages& real) {
  const std::vector<uint32_t> order = epoch_order(control_seed, 0, static_cast<uint64_t>(real.labels.size(0)));
  const std::vector<int64_t> index(order.begin(), order.end());
  return {real.images, real.labels.index_select(0, at::tensor(index, at::kLong))};
}

LabelledImages noise(const LabelledImages& real) {
  LabelledImages result = part(real, 0, count);
  result.images =
      at::empty_like(result.images).uniform_(-1, 1, at::make_generator<at::CPUGeneratorImpl>(control_seed));
  return result;
}

LabelledImages blurred(const LabelledImages& real) {
  constexpr int64_t edge = blur_side / 2;
  LabelledImages result = part(real, 0, count);
  result.images = at::constant_pad_nd(result.images, {edge, edge, edge, edge}, -1);
  result.images = at::avg_pool2d(result.images, {blur_side, blur_side}, {1, 1});
  return result;
}

Control far_from_real(const std::string& name, const Judge::Score& score) {
  return {name, score, score.distance > min_distance, "fd above 100"};
}

}  // namespace

std::vector<Control> run_controls(Judge& judge) {
  const LabelledImages& real = judge.test_set();
  const Judge::Score shuffled = judge.score(with_shuffled_labels(real));
  const bool like_chance = shuffled.accuracy > 0.08 && shuffled.accuracy < 0.12;
  return {{"real images, shuffled labels", shuffled, like_chance, "accuracy between 0.08 and 0.12"},
          far_from_real("uniform noise", judge.score(noise(real))),
          far_from_real("blurred images", judge.score(blurred(real)))};
}

}  // namespace dtk::judging
