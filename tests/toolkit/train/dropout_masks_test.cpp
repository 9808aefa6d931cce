// Masks of dropout on the CPU: the right frequency, the same for any number of threads and in a
// recomputation.
#include "toolkit/train/dropout_masks.h"

#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>

#include "support/catch.h"

using dtk::DropoutMaskScope;

namespace {

constexpr int64_t kMany = 1'000'003;

at::Tensor mask(double p, at::ScalarType type = at::kFloat, uint64_t seed = 7) {
  at::manual_seed(seed);
  return at::empty({kMany}, type).bernoulli_(p);
}

at::Tensor drawn_mask(double p, at::ScalarType type = at::kFloat, uint64_t seed = 7) {
  const DropoutMaskScope masks;
  return mask(p, type, seed);
}

}  // namespace

TEST_CASE("dropout masks: zeros and ones, as often as asked for") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const at::Tensor drawn = drawn_mask(p, type).to(at::kDouble);
    CAPTURE(p);
    CHECK((drawn * (1 - drawn)).abs().max().item<double>() == 0);
    const double deviation = std::sqrt(p * (1 - p) / kMany);
    CHECK(std::abs(drawn.mean().item<double>() - p) <= 5 * deviation);
    // Neighbours, and elements of two halves of one number, are independent.
    for (const int64_t apart : {1, 2, 1024}) {
      const at::Tensor both = drawn.narrow(0, 0, kMany - apart) * drawn.narrow(0, apart, kMany - apart);
      CHECK(std::abs(both.mean().item<double>() - p * p) <= 8 * deviation);
    }
  }
}

TEST_CASE("dropout masks: each draw is another, from the generator's state and from no number of threads") {
  const at::Tensor first = drawn_mask(0.5);
  CHECK_FALSE(at::equal(first, mask(0.5)));  // LibTorch's
  CHECK_FALSE(at::equal(first, drawn_mask(0.5, at::kFloat, 8)));
  CHECK(at::equal(first, drawn_mask(0.5)));
  CHECK(at::equal(first, drawn_mask(0.5, at::kBFloat16).to(at::kFloat)));
  for (const int threads : {1, 2, 3}) {
    const dtk::policies::ThreadCountGuard count(threads);
    CHECK(at::equal(first, drawn_mask(0.5)));
  }
  const DropoutMaskScope masks;
  at::manual_seed(7);
  at::Tensor again = at::empty({kMany});
  const auto version = again._version();
  again.bernoulli_(0.5);
  CHECK(again._version() == version + 1);
  CHECK(at::equal(first, again));
  CHECK_FALSE(at::equal(first, again.bernoulli_(0.5)));
  at::Generator own = at::make_generator<at::CPUGeneratorImpl>(7);
  CHECK(at::equal(first, at::empty({kMany}).bernoulli_(0.5, own)));
}

TEST_CASE("dropout masks: all else is drawn as ever, and so is all after the scope") {
  const auto others = [] {
    at::manual_seed(3);
    return std::vector<at::Tensor>{at::empty({99}, at::kDouble).bernoulli_(0.3),
                                   at::empty({99}, at::kBool).bernoulli_(0.3),
                                   at::empty({9, 9}).transpose(0, 1).narrow(0, 1, 5).bernoulli_(0.3),
                                   at::rand({99}),
                                   at::bernoulli(at::full({99}, 0.3)),
                                   at::randn({99})};
  };
  const auto ever = others();
  std::vector<at::Tensor> within;
  {
    const DropoutMaskScope masks;
    within = others();
    CHECK_THROWS_AS(at::empty({9}).bernoulli_(1.5), c10::Error);
  }
  for (size_t i = 0; i < ever.size(); ++i) CHECK(at::equal(ever[i], within[i]));
  CHECK(at::equal(mask(0.5), mask(0.5)));
  CHECK_FALSE(at::equal(mask(0.5), drawn_mask(0.5)));
}

TEST_CASE("dropout masks: a recomputation makes the mask of forward again, attention's too") {
  const dtk::policies::SavedTensorEngineGuard engine;
  const DropoutMaskScope masks;
  at::manual_seed(5);
  const at::Tensor x = at::randn({2, 2, 16, 8}).requires_grad_(true);
  const auto fn = [](dtk::policies::Tensors&& in) {
    const at::Tensor h = at::dropout(in[0].tanh(), 0.3, /*train=*/true);
    return dtk::policies::Tensors{at::scaled_dot_product_attention(h, h, h, {}, /*dropout_p=*/0.2).exp()};
  };
  const auto gradient = [&](bool segment) {
    at::manual_seed(6);
    const at::Tensor out = segment ? dtk::policies::checkpoint("net", fn, {x})[0] : fn({x})[0];
    at::rand({3});  // the generator goes on before backward
    return torch::autograd::grad({out.sum()}, {x})[0];
  };
  const at::Tensor plain = gradient(false);
  CHECK(at::equal(plain, gradient(true)));
}
