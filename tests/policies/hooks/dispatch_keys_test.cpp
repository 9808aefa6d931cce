// Where another has registered kernels on what dtk borrows of LibTorch, dtk says so instead of registering
// its own. A program of its own: once dtk has taken its keys it does not ask again.
#include <ATen/ATen.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/internal/torch_versions.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <memory>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/train/dropout_masks.h"

using namespace dtk::policies;
using dtk::test::error_text;

namespace {

// Gone again when it is destroyed.
struct Theirs {
  explicit Theirs(c10::DispatchKey key, const char* space = "aten")
      : library(torch::Library::IMPL, space, key, "theirs.cpp", 7) {}
  void add(const char* name) { library.impl(name, torch::CppFunction::makeFallthrough()); }
  torch::Library library;
};

Theirs fallback_on(c10::DispatchKey key) {
  Theirs theirs(key, "_");
  theirs.library.fallback(torch::CppFunction::makeFallthrough());
  return theirs;
}

Theirs kernel_on(c10::DispatchKey key) {
  Theirs theirs(key);
  theirs.add("mul.Tensor");
  return theirs;
}

void plan() {
  dtk::planner::simulate(c10::kCPU, [](const auto&) { at::ones({3}).add(1); });
}

// As the user of the key would meet it.
std::string refusal(KeyUser user) {
  if (user == KeyUser::planner) return error_text<dtk::planner::PlanError>(plan);
  try {
    if (user == KeyUser::policies) const SavedTensorEngineGuard engine;
    if (user == KeyUser::toolkit) dtk::register_dropout_masks();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

std::string conflict(const BorrowedKey& borrowed, const std::string& registered) {
  return std::string("LibTorch's dispatch key ") + c10::toString(borrowed.key) +
         " has two users in this process: dtk, for " + borrowed.use + ", and what has registered " +
         registered + " registered at theirs.cpp:7; only one of them can have it, so leave one out of this " +
         "process";
}

bool is_autograd(c10::DispatchKey key) {
  return key == kKeptResultAutogradKey || key == kKnownStatisticsAutogradKey;
}

struct TheirInfo final : c10::DebugInfoBase {};

}  // namespace

TEST_CASE("a key that this process calls otherwise is of another LibTorch") {
  for (BorrowedKey borrowed : kBorrowedKeys) {
    CHECK(dispatch_key_mismatch(borrowed).empty());
    borrowed.name = "Named";
    CHECK(dispatch_key_mismatch(borrowed).find(" in this process, and was Named in the LibTorch ") !=
          std::string::npos);
  }
}

TEST_CASE("a key that another has registered on is refused, and taken once it is free") {
  for (const BorrowedKey& borrowed : kBorrowedKeys) {
    INFO(c10::toString(borrowed.key));
    {
      const Theirs theirs = kernel_on(borrowed.key);
      CHECK(refusal(borrowed.user) == conflict(borrowed, "a kernel of aten::mul.Tensor,"));
    }
    {
      Theirs theirs = kernel_on(borrowed.key);
      theirs.add("sin");
      theirs.add("bernoulli_.float");
      CHECK(refusal(borrowed.user) == conflict(borrowed, "a kernel of aten::bernoulli_.float and 2 others,"));
    }
    if (is_autograd(borrowed.key)) continue;
    const Theirs theirs = fallback_on(borrowed.key);
    CHECK(refusal(borrowed.user) == conflict(borrowed, "a fallback, fallthrough"));
  }
  {
    const c10::DebugInfoGuard theirs(kSavedTensorStackInfo, std::make_shared<TheirInfo>());
    const std::string said = refusal(KeyUser::policies);
    CHECK(said.find("LibTorch's debug information " + std::string(kSavedTensorStackName) +
                    " has two users in this thread: dtk, ") != std::string::npos);
    CHECK(said.find("TheirInfo there; only one of them can have it") != std::string::npos);
  }

  plan();
  const SavedTensorEngineGuard engine;
  const at::Tensor x = at::ones({3}).requires_grad_();
  const Tensors y = checkpoint("segment", [](Tensors&& in) { return Tensors{in[0].sin().cos()}; }, {x});
  torch::autograd::backward({y[0].sum()}, {});
  CHECK(x.grad().defined());
  CHECK(refusal(KeyUser::toolkit).empty());
}
