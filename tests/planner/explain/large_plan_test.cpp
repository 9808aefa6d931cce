// Jobs larger than the machine are planned in addresses alone.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/memory_ledger.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace dtk;

namespace {

// Of this process, as the system counts.
struct PageCounts {
  PageCounts() {
    std::ifstream file("/proc/self/statm");
    file >> addresses >> resident;
    const int64_t page = 4096;
    addresses *= page;
    resident *= page;
  }
  int64_t addresses = 0, resident = 0;  // bytes
};

constexpr int64_t kSide = 131072, kMatrix = 4 * kSide * kSide;  // 68.7 GB
constexpr int64_t kMega = 1000000;

}  // namespace

TEST_CASE("a step of matrices of 68.7 GB is planned in addresses, and they are given back") {
  const PageCounts before;
  PageCounts within;
  const auto job = [&](const planner::EndOfPlan&) {
    const at::Tensor weight = at::empty({kSide, kSide}).requires_grad_();
    const at::Tensor x = at::empty({kSide, kSide});
    at::Tensor loss = at::relu(at::mm(x, weight)).sum();
    within = PageCounts();
    torch::autograd::backward({loss}, {});
  };
  const planner::SimulationResult plan = planner::simulate(at::kCPU, job);
  const PageCounts after;
  CHECK(policies::highest(plan.device).peak.bytes >= 4 * kMatrix);
  CHECK(within.addresses - before.addresses >= 3 * kMatrix);
  CHECK(within.resident - before.resident < 100 * kMega);
  CHECK(after.addresses - before.addresses < 1000 * kMega);
}

TEST_CASE("a tensor of a plan may outlive it, and is real memory of zeros") {
  at::Tensor kept;
  constexpr int64_t last = 16 * kMega - 1;
  planner::simulate(at::kCPU, [&](const planner::EndOfPlan&) { kept = at::empty({last + 1}); });
  CHECK(kept.const_data_ptr<float>()[last] == 0);
  kept.mutable_data_ptr<float>()[last] = 3;
  CHECK(kept[last].item<float>() == 3);
  const PageCounts before;
  kept.reset();
  CHECK(before.addresses - PageCounts().addresses >= 64 * kMega);
}

TEST_CASE("where not even the addresses are given, that is said, with who asked for them") {
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const PageCounts now;
  rlimit little = before;
  little.rlim_cur = static_cast<rlim_t>(now.addresses + 1000 * kMega);
  std::string message;
  planner::simulate(at::kCPU, [&](const planner::EndOfPlan&) {
    REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
    try {
      at::empty({kSide, kSide});
    } catch (const c10::OutOfMemoryError& error) {
      message = error.what_without_backtrace();
    }
    setrlimit(RLIMIT_AS, &before);
  });
  CHECK(message ==
        "out of address space, which ulimit -v may limit: 68719476736 bytes asked for by aten::empty in "
        "phase build with 0 bytes alive");
}
