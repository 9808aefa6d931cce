// Batch and instance normalisation on the simulated device: by cuDNN where LibTorch gives it to cuDNN, else
// by its own kernels. What each makes is stated here from LibTorch's sources; no device has confirmed it.
#include <ATen/ATen.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>

#include "support/catch.h"
#include "support/device/devices.h"

using namespace dtk;

namespace {

using dtk::test::kCuda;
constexpr int64_t kBatch = 4, kChannels = 6, kSide = 5;

struct Norm {
  explicit Norm(at::ScalarType type)
      : x(at::ones({kBatch, kChannels, kSide, kSide}, kCuda).to(type).requires_grad_()),
        weight(at::ones({kChannels}, kCuda).requires_grad_()),
        bias(at::zeros({kChannels}, kCuda).requires_grad_()),
        mean(at::zeros({kChannels}, kCuda)),
        var(at::ones({kChannels}, kCuda)) {}
  at::Tensor operator()(bool train) const {
    return at::batch_norm(x, weight, bias, mean, var, train, 0.1, 1e-5, true);
  }
  at::Tensor x, weight, bias, mean, var;
};

// Bytes alive on the device that `act` adds, by the operator that made them.
std::map<std::string, int64_t> made_by(const std::function<void()>& act) {
  const auto now = [] {
    auto items = policies::device_accounts().live().items();
    return items[policies::Category::temporaries];
  };
  std::map<std::string, int64_t> made = now();
  for (auto& [name, bytes] : made) bytes = -bytes;
  act();
  for (const auto& [name, bytes] : now()) made[name] += bytes;
  std::erase_if(made, [](const auto& one) { return one.second <= 0; });  // backward lets go of statistics
  return made;
}

struct Made {
  std::map<std::string, int64_t> forward, backward;
};

Made norm_and_gradients(at::ScalarType type, bool train) {
  Made made;
  const auto job = [&](const planner::EndOfPlan&) {
    const Norm norm(type);
    at::Tensor y;
    made.forward = made_by([&] { y = norm(train); });
    const at::Tensor grad = at::ones_like(y);
    made.backward = made_by([&] { torch::autograd::backward({y}, {grad}); });
  };
  planner::simulate(kCuda, job);
  return made;
}

using Bytes = std::map<std::string, int64_t>;
constexpr int64_t kElements = kBatch * kChannels * kSide * kSide;

}  // namespace

TEST_CASE(
    "fp32 batch normalisation is cuDNN's: result and two statistics, gradients of input and parameters") {
  const Made made = norm_and_gradients(at::kFloat, true);
  CHECK(made.forward == Bytes{{"aten::cudnn_batch_norm", 4 * kElements + 2 * 4 * kChannels}});
  CHECK(made.backward == Bytes{{"aten::cudnn_batch_norm_backward", 4 * kElements + 2 * 4 * kChannels}});
}

TEST_CASE("cuDNN keeps no statistics in evaluation, and its gradients are LibTorch's own") {
  const Made made = norm_and_gradients(at::kFloat, false);
  CHECK(made.forward == Bytes{{"aten::cudnn_batch_norm", 4 * kElements}});
  CHECK(made.backward == Bytes{{"aten::native_batch_norm_backward", 4 * kElements + 2 * 4 * kChannels}});
}

TEST_CASE("bf16 batch normalisation is LibTorch's own, with statistics in fp32 in evaluation too") {
  for (const bool train : {true, false}) {
    const Made made = norm_and_gradients(at::kBFloat16, train);
    CHECK(made.forward == Bytes{{"aten::native_batch_norm", 2 * kElements + 2 * 4 * kChannels}});
    CHECK(made.backward == Bytes{{"aten::native_batch_norm_backward", 2 * kElements + 2 * 4 * kChannels}});
  }
}

TEST_CASE("without parameters, and of lines of one element, batch normalisation is LibTorch's own") {
  const auto job = [](const planner::EndOfPlan&) {
    const at::Tensor x = at::ones({kBatch, kChannels}, kCuda).requires_grad_();
    at::Tensor y;
    const Bytes forward =
        made_by([&] { y = at::batch_norm(x, {}, {}, {}, {}, /*training=*/true, 0.1, 1e-5, true); });
    CHECK(forward == Bytes{{"aten::native_batch_norm", 4 * kBatch * kChannels + 2 * 4 * kChannels}});
    const at::Tensor grad = at::ones_like(y);
    const Bytes backward = made_by([&] { torch::autograd::backward({y}, {grad}); });
    CHECK(backward == Bytes{{"aten::native_batch_norm_backward", 4 * kBatch * kChannels}});
  };
  planner::simulate(kCuda, job);
}

TEST_CASE("instance normalisation repeats its parameters for each sample, and sums their gradients") {
  const auto job = [](const planner::EndOfPlan&) {
    const Norm norm(at::kFloat);
    at::Tensor y;
    const Bytes forward = made_by([&] {
      y = at::instance_norm(norm.x, norm.weight, norm.bias, {}, {}, /*use_input_stats=*/true, 0.1, 1e-5,
                            /*cudnn_enabled=*/true);
    });
    // The repeated bias is not needed for backward.
    CHECK(forward == Bytes{{"aten::cudnn_batch_norm", 4 * kElements + 2 * 4 * kBatch * kChannels},
                           {"aten::repeat", 4 * kBatch * kChannels}});
    const at::Tensor grad = at::ones_like(y);
    const Bytes backward = made_by([&] { torch::autograd::backward({y}, {grad}); });
    CHECK(backward ==
          Bytes{{"aten::cudnn_batch_norm_backward", 4 * kElements}, {"aten::sum", 2 * 4 * kChannels}});
  };
  planner::simulate(kCuda, job);
}

TEST_CASE("a gradient in another memory format is copied by cuDNN's path, and the copy is counted") {
  const auto job = [](const planner::EndOfPlan&) {
    const Norm norm(at::kFloat);
    const at::Tensor y = norm(true);
    const at::Tensor grad = at::ones_like(y, at::MemoryFormat::ChannelsLast);
    const auto before = policies::device_accounts().live().bytes;
    policies::device_accounts().reset_phases("backward");
    torch::autograd::backward({y}, {grad});
    const auto peak = policies::highest(policies::device_accounts().phases()).peak.bytes;
    CHECK(peak - before == 2 * 4 * kElements + 2 * 4 * kChannels);
  };
  planner::simulate(kCuda, job);
}

TEST_CASE("what cuDNN takes and reserves for a batch norm is said not to be known") {
  const auto terms_of = [](bool convolve, bool train) {
    const auto job = [=](const planner::EndOfPlan&) {
      const Norm norm(at::kFloat);
      at::Tensor y = norm(train);
      if (convolve) y = at::conv2d(y, at::ones({4, kChannels, 3, 3}, kCuda));
    };
    for (const planner::DeviceTerm& term : planner::simulate(kCuda, job).terms) {
      if (term.name == "convolution_workspaces") return term.known ? "known" : term.formula;
    }
    return std::string("none");
  };
  const std::string end = ", cuDNN chooses a kernel, and with it the workspace that a call takes and frees";
  const std::string reserves = ", and what a batch norm reserves for its backward pass";
  CHECK(terms_of(false, false) == "none");
  CHECK(terms_of(true, false) == "none: for each convolution, of 1 different sizes here" + end);
  CHECK(terms_of(false, true) ==
        "none: for each batch norm in training, of 1 different sizes here" + end + reserves);
  CHECK(terms_of(true, true) ==
        "none: for each convolution, of 1 different sizes here, and for each batch norm in training, of 1 "
        "different sizes here" +
            end + reserves);
}
