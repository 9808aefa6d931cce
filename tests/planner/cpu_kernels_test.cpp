// Which operators' CPU kernels leave storages of other operators behind until they end: the planner, which takes
// such a kernel for one operator with its results, would miss them. Real jobs run here, with a fallback of this
// program on DispatchKey::Fake in place of the planner's.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "by_shapes.h"
#include "cpu_shapes.h"
#include "support/catch.h"
#include "support/run_world.h"

using namespace dtk;
using policies::MemoryEvent;

namespace {

// Operators met that the planner answers by a shape kernel of LibTorch, and those of other operators that such a
// call leaves alive beyond the inner call.
struct Seen {
  std::set<std::string> leaves;
  std::map<std::string, std::set<std::string>> left_behind;
};
Seen seen;
thread_local bool within_leaf = false;

// Temporaries that were born since the log began and died without being the scratch of the call they were born in.
void look_at(const std::string& op, const std::vector<MemoryEvent>& events) {
  std::map<uint64_t, std::string> born;
  std::set<uint64_t> scratch;
  for (const MemoryEvent& event : events) {
    if (event.kind == MemoryEvent::Kind::birth && event.to.category == policies::Category::temporaries)
      born[event.serial] = policies::owner_of(event.to).label;
    if (event.kind == MemoryEvent::Kind::scratch) scratch.insert(event.serial);
    if (event.kind == MemoryEvent::Kind::death && born.count(event.serial) > 0 && scratch.count(event.serial) == 0)
      seen.left_behind[op].insert(born[event.serial]);
  }
}

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  if (within_leaf || planner::treatment_of(op) != planner::Treatment::shapes) {
    op.redispatchBoxed(keys & below, stack);
    return;
  }
  const std::string name = planner::name_of(op);
  seen.leaves.insert(name);
  within_leaf = true;
  policies::cpu_accounts().start_event_log();
  try {
    op.redispatchBoxed(keys & below, stack);
  } catch (...) {
    policies::cpu_accounts().stop_event_log();
    within_leaf = false;
    throw;
  }
  look_at(name, policies::cpu_accounts().stop_event_log());
  within_leaf = false;
}

// Runs `job` for real and records its operators.
Seen record(const std::function<void()>& job) {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
  static const bool once = [] {
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator>());
    return true;
  }();
  static_cast<void>(once);
  seen = {};
  const policies::CountingAllocatorGuard counting;
  const c10::impl::IncludeDispatchKeyGuard recording(c10::DispatchKey::Fake);
  job();
  return seen;
}

std::string text(const Seen& result) {
  std::string lines;
  for (const auto& [op, inner] : result.left_behind) {
    lines += op + " leaves behind:";
    for (const std::string& name : inner) lines += " " + name;
    lines += "\n";
  }
  return lines;
}

at::Tensor careless_kernel(const at::Tensor& x) {
  const at::Tensor twice = x * 2;
  return twice + 1;
}

TORCH_LIBRARY(kernels_test, m) {
  m.def("careless(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(kernels_test, CPU, m) {
  m.impl("careless", &careless_kernel);
}

}  // namespace

TEST_CASE("a kernel that keeps another operator's result until it ends is found") {
  const Seen result = record([] {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("kernels_test::careless", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(at::ones({64}));
  });
  CHECK(text(result) == "kernels_test::careless leaves behind: aten::mul\n");
}

TEST_CASE("no operator of a training run keeps another operator's result until it ends") {
  const std::string objective = GENERATE("rectified_flow", "epsilon", "v", "x0");
  const bool plain = GENERATE(false, true);  // without policies, and in fp32
  test::World world;
  LoadedConfig loaded = test::tiny("runs/kernels");
  RunConfig& config = loaded.config;
  const RunConfig chosen = test::tiny_config(objective);
  config.diffusion = chosen.diffusion;
  config.sample = chosen.sample;
  config.model = chosen.model;
  config.train.steps = 3;
  config.train.validate_every = 1;
  config.train.sample_every = 2;
  config.data.validation = 8;
  config.data.drop_last = false;
  config.data.flip = true;
  config.policies.precision.cpu = plain ? "fp32" : "bf16";
  if (plain) {
    config.policies.attention.enabled = policies::Enabled::off;
    config.policies.checkpoint.enabled = policies::Enabled::off;
  }
  const Seen result = record([&] { world.run(loaded); });
  CAPTURE(objective, plain);
  CHECK(world.listener.finished_at_step == 3);
  CHECK(result.leaves.size() > 30);
  CHECK(result.leaves.count("aten::addmm") == 1);
  CHECK(text(result).empty());
}
