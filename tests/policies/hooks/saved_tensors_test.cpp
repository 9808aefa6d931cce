// The stack of saved-tensor layers: order, versions, threads, lifetimes, and gradients that do not change.
#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/InferenceMode.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

// Passes tensors on and writes down who saw how many, and how many are alive.
class Witness final : public SavedTensorLayer {
 public:
  Witness(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
    CHECK_FALSE(tensor.requires_grad());
    log_.push_back(name_);
    return std::make_unique<Handle>(below.pack(tensor), alive_);
  }
  int alive() const { return *alive_; }

 private:
  struct Handle final : SavedTensor {
    Handle(std::unique_ptr<SavedTensor> under, std::shared_ptr<int> count)
        : kept(std::move(under)), alive(std::move(count)) {
      ++*alive;
    }
    ~Handle() override { --*alive; }
    at::Tensor unpack() override { return kept->unpack(); }
    const std::unique_ptr<SavedTensor> kept;
    const std::shared_ptr<int> alive;
  };
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a graph may outlive its layer
  const std::string name_;
  std::vector<std::string>& log_;
};

at::Tensor parameter(at::IntArrayRef shape) {
  return at::randn(shape).requires_grad_(true);
}

}  // namespace

TEST_CASE("layers see each saved tensor from the top down, and only while their scope lives") {
  SavedTensorEngineGuard engine;
  std::vector<std::string> log;
  const auto ledger = std::make_shared<Witness>("ledger", log),
             offload = std::make_shared<Witness>("offload", log);
  const at::Tensor x = parameter({4});
  at::Tensor y, z;
  {
    SavedTensorScope outer(ledger);
    SavedTensorScope inner(offload);
    y = x.exp();
  }
  CHECK(log == std::vector<std::string>{"offload", "ledger"});
  z = y.exp();
  CHECK(log.size() == 2);
  CHECK(ledger->alive() == 1);
  torch::autograd::backward({z.sum()}, {});
  CHECK(ledger->alive() == 0);
  CHECK(offload->alive() == 0);
}

TEST_CASE("without the engine guard the stack is not asked, and the guard ends cleanly") {
  std::vector<std::string> log;
  const auto witness = std::make_shared<Witness>("layer", log);
  const at::Tensor x = parameter({4});
  {
    SavedTensorEngineGuard engine;
    SavedTensorEngineGuard again;
  }
  SavedTensorScope scope(witness);
  torch::autograd::backward({x.exp().sum()}, {});
  CHECK(log.empty());
  CHECK(x.grad().defined());
}

TEST_CASE("gradients are bit-equal with and without layers") {
  SavedTensorEngineGuard engine;
  at::manual_seed(3);
  const at::Tensor x = at::randn({8, 16}), w1 = parameter({32, 16}), b1 = parameter({32}),
                   w2 = parameter({16, 32});
  const auto gradients = [&] {
    for (const at::Tensor& p : {w1, b1, w2}) p.mutable_grad().reset();
    at::Tensor h = at::gelu(at::linear(x, w1, b1), "tanh");
    h = at::layer_norm(at::linear(h, w2), {16});
    torch::autograd::backward({(h * h.sigmoid()).sum()}, {});
    return std::vector<at::Tensor>{w1.grad().clone(), b1.grad().clone(), w2.grad().clone()};
  };
  const auto plain = gradients(), again = gradients();
  std::vector<std::string> log;
  SavedTensorScope scope(std::make_shared<Witness>("layer", log));
  const auto layered = gradients();
  CHECK(log.size() > 5);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(at::equal(plain[i], again[i]));  // the comparison below means something
    CHECK(at::equal(plain[i], layered[i]));
  }
}

TEST_CASE("a tensor changed in place after it was saved is refused, as LibTorch does without hooks") {
  SavedTensorEngineGuard engine;
  const at::Tensor x = parameter({2, 3});
  std::vector<std::string> log;
  at::Tensor y;
  {
    SavedTensorScope scope(std::make_shared<Witness>("layer", log));
    y = x.exp();
  }
  y.detach().mul_(2);
  CHECK_THROWS_WITH(
      torch::autograd::backward({y.sum()}, {}),
      Catch::Contains("a tensor [2, 3] saved for backward was changed in place afterwards (version 0 "
                      "when saved, 1 now), so its gradient would be wrong; make that change out of "
                      "place, or after backward"));
}

TEST_CASE("a tensor made in inference mode, which has no version, is kept") {
  const SavedTensorEngineGuard engine;
  at::Tensor constant;
  {
    const c10::InferenceMode inference;
    constant = at::full({2}, 3.0);
  }
  CHECK(version_of(constant) == 0);
  CHECK_NOTHROW(SavedTensorStack::current().pack(constant)->unpack());
}

TEST_CASE("retain_graph, double backward and dropped graphs leave nothing behind") {
  SavedTensorEngineGuard engine;
  std::vector<std::string> log;
  const auto witness = std::make_shared<Witness>("layer", log);
  const at::Tensor x = parameter({4});
  SavedTensorScope scope(witness);
  {
    const at::Tensor y = x.exp().sum();
    torch::autograd::backward({y}, {}, /*retain_graph=*/true);
    CHECK(witness->alive() == 1);
    torch::autograd::backward({y}, {});
    CHECK(witness->alive() == 0);
  }
  {
    const at::Tensor y = x.exp().sum();
    const auto first = torch::autograd::grad({y}, {x}, {}, true, true);
    const auto second = torch::autograd::grad({first[0].sum()}, {x});
    CHECK(at::allclose(second[0], x.detach().exp()));
  }
  for (int i = 0; i < 100; ++i) const at::Tensor dropped = x.exp();
  CHECK(witness->alive() == 0);
}

TEST_CASE("the stack travels with LibTorch's thread state, as to the engine's worker threads") {
  SavedTensorEngineGuard engine;
  std::vector<std::string> log;
  const at::Tensor x = parameter({4});
  SavedTensorScope scope(std::make_shared<Witness>("layer", log));
  const at::ThreadLocalState state;
  std::thread bare([&] { x.exp(); });
  bare.join();
  CHECK(log.empty());
  std::thread worker([&] {
    const at::ThreadLocalStateGuard carried(state);
    x.exp();
  });
  worker.join();
  CHECK(log == std::vector<std::string>{"layer"});
}

TEST_CASE("a stack can be taken along and made current again, also the empty one") {
  SavedTensorEngineGuard engine;
  std::vector<std::string> log;
  const at::Tensor x = parameter({4});
  const SavedTensorStack empty = SavedTensorStack::current();
  CHECK(empty.empty());
  SavedTensorStack taken = empty;
  {
    SavedTensorScope scope(std::make_shared<Witness>("layer", log));
    taken = SavedTensorStack::current();
    SavedTensorScope none(empty);
    x.exp();
    CHECK(log.empty());
  }
  SavedTensorScope scope(taken);
  x.exp();
  CHECK(log.size() == 1);
}

TEST_CASE("an exception thrown while packing passes and leaves the stack as it was") {
  struct Thrower final : SavedTensorLayer {
    std::unique_ptr<SavedTensor> pack(const at::Tensor&, const SavedTensorStack&) override {
      throw std::runtime_error("no room");
    }
  };
  SavedTensorEngineGuard engine;
  const at::Tensor x = parameter({4});
  {
    SavedTensorScope scope(std::make_shared<Thrower>());
    CHECK_THROWS_WITH(x.exp(), "no room");
  }
  CHECK(SavedTensorStack::current().empty());
  torch::autograd::backward({x.exp().sum()}, {});
  CHECK(x.grad().defined());
}
