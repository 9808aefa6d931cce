// The DenseNet of examples/densenet_checkpoint against the Python original, and its forms against each other.
#include <ATen/ATen.h>
#include <densenet_checkpoint/checkpoint_2018.h>
#include <densenet_checkpoint/comparison.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <stdexcept>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/fixture.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using namespace dtk::test;
using namespace examples;

namespace {

constexpr int64_t kSmall = 22, kDepth = 100;

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Weights and statistics of the original.
void load(DenseNet& net, const Fixture& golden) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : net.named_parameters().pairs())
    tensor.detach().copy_(golden.at("w." + name));
  for (const auto& [name, tensor] : net.named_buffers().pairs()) tensor.copy_(golden.at("w." + name));
}

void check_gradients(const DenseNet& net, const Fixture& golden) {
  std::map<std::string, at::Tensor> gradients;  // sorted by name, as the norms are
  for (const auto& [name, tensor] : net.named_parameters().pairs()) gradients[name] = tensor.grad();
  const at::Tensor norms = golden.at("grad.norms_sorted_by_name");
  REQUIRE(norms.numel() == static_cast<int64_t>(gradients.size()));
  int64_t i = 0, whole = 0;
  for (const auto& [name, gradient] : gradients) {
    CAPTURE(name);
    CHECK(gradient.norm().item<double>() == Approx(norms[i++].item<double>()).epsilon(1e-5));
    if (!golden.has("grad." + name)) continue;
    ++whole;
    CHECK(largest_difference(gradient, golden.at("grad." + name)) < 1e-5);
  }
  CHECK(whole == 4);
}

// One at a time: it counts what this thread saves.
struct Forward {
  explicit Forward(Form form) {
    at::manual_seed(3);
    net = make_densenet(form, DenseNetOptions::of_depth(kSmall), kept.saved());
    const at::Tensor x = at::randn({2, 3, 32, 32}), y = at::arange(2);
    loss = at::cross_entropy_loss(net->forward(x), y);
  }
  CountingAllocatorGuard counting;
  SavedBytesScope kept;
  std::unique_ptr<DenseNet> net;
  at::Tensor loss;
};

struct Result {
  std::vector<at::Tensor> gradients;
  at::Tensor loss;
  int64_t saved = 0;
};

Result result_of(Form form) {
  Forward forward(form);
  Result result{{}, forward.loss.detach(), forward.kept.saved()->bytes()};
  torch::autograd::backward({forward.loss}, {});
  for (const at::Tensor& parameter : forward.net->parameters()) result.gradients.push_back(parameter.grad());
  return result;
}

at::Tensor first_mean(const DenseNet& net) {
  return net.named_buffers()["features.denseblock1.denselayer1.norm1.running_mean"].clone();
}

}  // namespace

TEST_CASE("outputs, loss, gradients and statistics are those of the original, in every form") {
  const Fixture golden = read_fixture("densenet_small");
  const Form form = GENERATE(Form::plain, Form::checkpointed, Form::form_2018);
  CAPTURE(name_of(form));
  const CountingAllocatorGuard counting;
  const SavedBytesScope kept;
  const auto net = make_densenet(form, DenseNetOptions::of_depth(kSmall), kept.saved());
  load(*net, golden);
  {
    const at::NoGradGuard no_grad;
    net->eval();
    CHECK(largest_difference(net->forward(golden.at("x")), golden.at("eval_logits")) < 1e-5);
    net->train();
  }
  const at::Tensor logits = net->forward(golden.at("x"));
  CHECK(largest_difference(logits, golden.at("train_logits")) < 1e-5);
  const at::Tensor loss = at::cross_entropy_loss(logits, golden.at("y"));
  CHECK(loss.item<double>() == Approx(2.3483051429649615).epsilon(1e-6));
  torch::autograd::backward({loss}, {});
  check_gradients(*net, golden);
  for (const auto& [name, tensor] : net->named_buffers().pairs()) {
    CAPTURE(name);
    CHECK(largest_difference(tensor, golden.at("after." + name)) < 1e-6);
  }
}

TEST_CASE("the network has the original's size") {
  const auto size_of = [](int64_t depth) {
    const auto net = make_densenet(Form::plain, DenseNetOptions::of_depth(depth), nullptr);
    int64_t count = 0;
    for (const at::Tensor& parameter : net->parameters()) count += parameter.numel();
    return std::pair(count, net->parameters().size());
  };
  CHECK(size_of(kDepth) == std::pair<int64_t, size_t>(769162, 299));
  CHECK(size_of(kSmall) == std::pair<int64_t, size_t>(71686, 65));
}

TEST_CASE("an image keeps the bytes that the rules of saved tensors give") {
  const CountingAllocatorGuard counting;
  const auto saved = [](Form form, int64_t depth) {
    return saved_bytes_per_image(form, DenseNetOptions::of_depth(depth));
  };
  CHECK(saved(Form::plain, kDepth) == 34822536);
  CHECK(saved(Form::plain, kSmall) == 3591492);
  for (const Form form : {Form::checkpointed, Form::form_2018, Form::form_2018_stock}) {
    CAPTURE(name_of(form));
    CHECK(saved(form, kDepth) == 12641160);
    CHECK(saved(form, kSmall) == 2646084);
  }
}

TEST_CASE("what the form of 2018 keeps as plain attributes no hook sees") {
  const auto seen = [](int64_t images) {
    const CountingAllocatorGuard counting;
    const SavedBytesScope kept;
    const auto net =
        make_densenet(Form::form_2018, DenseNetOptions::of_depth(kDepth), std::make_shared<SavedBytes>());
    const at::Tensor loss = net->forward(at::randn({images, 3, 32, 32})).log_softmax(1).select(1, 0).sum();
    return kept.saved()->bytes();
  };
  // The labels of a cross-entropy, 8 bytes an image, are not there.
  CHECK(seen(2) - seen(1) == 12641160 - 1214976 - 8);
}

TEST_CASE("all forms have the same gradients to the bit") {
  const Result plain = result_of(Form::plain);
  for (const Form form : {Form::checkpointed, Form::form_2018, Form::form_2018_stock}) {
    CAPTURE(name_of(form));
    const Result other = result_of(form);
    CHECK(other.saved < plain.saved);
    CHECK(same_bits(other.loss, plain.loss));
    REQUIRE(other.gradients.size() == plain.gradients.size());
    for (size_t i = 0; i < plain.gradients.size(); ++i)
      CHECK(same_bits(other.gradients[i], plain.gradients[i]));
  }
}

TEST_CASE("running statistics: in the first pass, in backward, or twice") {
  const at::Tensor mean = first_mean(*Forward(Form::plain).net);
  REQUIRE(mean.abs().max().item<float>() > 0);
  {
    Forward ours(Form::checkpointed);
    CHECK(same_bits(first_mean(*ours.net), mean));  // also where backward is skipped
    torch::autograd::backward({ours.loss}, {});
    CHECK(same_bits(first_mean(*ours.net), mean));
  }
  {
    Forward theirs(Form::form_2018);
    CHECK(first_mean(*theirs.net).abs().max().item<float>() == 0);
    torch::autograd::backward({theirs.loss}, {});
    CHECK(same_bits(first_mean(*theirs.net), mean));
  }
  Forward stock(Form::form_2018_stock);
  torch::autograd::backward({stock.loss}, {});
  CHECK(at::allclose(first_mean(*stock.net), mean * 1.9, 1e-5));  // 1 - (1 - 0.1)^2 for 0.1
}

TEST_CASE("the comparison says what differs, and recomputation takes at most 0.40 of the plain peak") {
  const Comparison comparison = compare({.depth = kDepth, .batch = 2, .rounds = 1});
  CHECK(comparison.parameters == 769162);
  CHECK(comparison.tensors == 299);
  const FormOutcome& plain = comparison.forms[0];
  CHECK(plain.peak > 2 * plain.saved_per_image);
  for (const FormOutcome& form : comparison.forms) {
    CAPTURE(name_of(form.form));
    const bool stock = form.form == Form::form_2018_stock;
    CHECK(form.gradient_error == 0);
    CHECK(form.equal_statistics == !stock);
    CHECK(form.steps == 3);
    CHECK(form.batches_tracked == (stock ? 6 : 3));
    CHECK(form.ms.size() == 1);
    if (form.form != Form::plain)
      CHECK(static_cast<double>(form.peak) <= 0.40 * static_cast<double>(plain.peak));
  }
}

TEST_CASE("a depth that is none is refused") {
  CHECK(error_text<std::invalid_argument>([] { DenseNetOptions::of_depth(99); }) ==
        "depth 99: allowed are 10, 16, 22 and so on in steps of 6");
  CHECK(error_text<std::invalid_argument>([] { DenseNetOptions::of_depth(4); }) ==
        "depth 4: allowed are 10, 16, 22 and so on in steps of 6");
}
