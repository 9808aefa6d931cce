// Guards put back what they found, also when an exception passes.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

template <class Body>
void throw_inside(Body&& body) {
  try {
    body();
    throw std::runtime_error("passing");
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

// First: the threads that it looks for stay once they are there.
TEST_CASE("a simulation that keeps the thread count starts no threads") {
  const auto threads = [] {
    return std::distance(begin(std::filesystem::directory_iterator("/proc/self/task")),
                         std::filesystem::directory_iterator());
  };
  const int count = at::get_num_threads();
  if (count < 2) return;  // LibTorch's pool is then the calling thread
  const auto before = threads();
  {
    class : public Simulation {
      std::unique_ptr<LoopFold> fold(std::string_view) override { return nullptr; }
    } simulation;
    const SimulationGuard simulating(simulation);
    const ThreadCountGuard guard(count);
    CHECK(threads() == before);
  }
  const ThreadCountGuard guard(count);
  CHECK(threads() > before);
}

TEST_CASE("the thread count comes back") {
  const int before = at::get_num_threads();
  try {
    ThreadCountGuard guard(before + 1);
    CHECK(at::get_num_threads() == before + 1);
    throw std::runtime_error("passing");
  } catch (const std::runtime_error&) {
  }
  CHECK(at::get_num_threads() == before);
}

TEST_CASE("the choice of attention kernels comes back") {
  auto& context = at::globalContext();
  context.setSDPUseMath(true);
  try {
    AttentionBackendGuard guard({.flash = true, .memory_efficient = false, .cudnn = false, .math = false});
    CHECK_FALSE(context.userEnabledMathSDP());
    CHECK_FALSE(context.userEnabledMemEfficientSDP());
    CHECK(context.userEnabledFlashSDP());
    throw std::runtime_error("passing");
  } catch (const std::runtime_error&) {
  }
  CHECK(context.userEnabledMathSDP());
  CHECK(context.userEnabledMemEfficientSDP());
}

TEST_CASE("autocast comes back, nests, and clears the cast weights at the end of the outermost guard") {
  CountingAllocatorGuard counting;
  const at::Tensor weight = at::randn({64, 64}).requires_grad_(true), x = at::randn({8, 64});
  const int64_t before = cpu_accounts().live_bytes();
  try {
    AutocastGuard guard(at::kCPU, true);
    CHECK(at::linear(x, weight).scalar_type() == at::kBFloat16);
    {
      AutocastGuard off(at::kCPU, false);
      CHECK(at::linear(x, weight).scalar_type() == at::kFloat);
    }
    CHECK(at::linear(x, weight).scalar_type() == at::kBFloat16);
    CHECK(cpu_accounts().live_bytes() - before >= 64 * 64 * 2);  // the cached cast
    throw std::runtime_error("passing");
  } catch (const std::runtime_error&) {
  }
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(at::linear(x, weight).scalar_type() == at::kFloat);
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("two users of the default generator stay independent of each other and of the program") {
  at::manual_seed(1);
  const at::Tensor outside_alone = at::rand({4});
  std::string alone = generator_state(make_generator(at::kCPU, 5));
  at::Tensor first, second;
  {
    DefaultGeneratorScope scope(at::kCPU, alone);
    first = at::rand({4});
    second = at::rand({4});
  }
  at::manual_seed(1);
  std::string a = generator_state(make_generator(at::kCPU, 5)),
              b = generator_state(make_generator(at::kCPU, 6));
  {
    DefaultGeneratorScope scope(at::kCPU, a);
    CHECK(at::equal(at::rand({4}), first));
  }
  throw_inside([&] {
    DefaultGeneratorScope scope(at::kCPU, b);
    CHECK_FALSE(at::equal(at::rand({4}), second));
  });
  {
    DefaultGeneratorScope scope(at::kCPU, a);
    CHECK(at::equal(at::rand({4}), second));
  }
  CHECK(at::equal(at::rand({4}), outside_alone));
}
