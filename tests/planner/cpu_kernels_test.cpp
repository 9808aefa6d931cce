// Each operator of real jobs on the CPU, planned and run: both must make the same storages, those that
// outlive the call and those of other operators that the kernel keeps until it ends. A job's peak may fall
// within any of them.
//
// A fallback of this program on DispatchKey::Fake, in place of the planner's, does first what the planner
// does with a call and then the call.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/kept_storages.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "by_shapes.h"
#include "call_scratch.h"
#include "cpu_shapes.h"
#include "support/catch.h"
#include "support/run_world.h"

using namespace dtk;
using policies::MemoryEvent;

namespace {

// Bytes of the storages that a call made: by where it did, "kept" for those that outlive it.
using Storages = std::map<std::string, std::multiset<int64_t>>;

struct Seen {
  std::set<std::string> operators;
  std::map<std::string, std::string> different;  // operator: what was planned and what was made
  std::map<std::string, int64_t> scratch;        // most bytes that a call took for itself, by operator
};
Seen seen;
thread_local bool within_call = false;

// Without scratch, which has its own place in the books.
Storages storages_of(const std::vector<MemoryEvent>& events) {
  std::map<uint64_t, std::pair<std::string, int64_t>> born;
  std::set<uint64_t> scratch;
  Storages storages;
  for (const MemoryEvent& event : events) {
    if (event.kind == MemoryEvent::Kind::birth && event.to.category == policies::Category::temporaries)
      born[event.serial] = {policies::owner_of(event.to).label, event.bytes};
    if (event.kind == MemoryEvent::Kind::scratch) scratch.insert(event.serial);
    const auto block = born.find(event.serial);
    if (event.kind != MemoryEvent::Kind::death || block == born.end()) continue;
    if (scratch.count(event.serial) == 0) storages[block->second.first].insert(block->second.second);
    born.erase(block);
  }
  for (const auto& [serial, block] : born) storages["kept"].insert(block.second);
  return storages;
}

std::string text(const Storages& storages) {
  std::string line;
  for (const auto& [place, sizes] : storages) {
    line += " " + place;
    for (const int64_t bytes : sizes) line += " " + std::to_string(bytes);
  }
  return line.empty() ? " nothing" : line;
}

// The most alive at once.
int64_t scratch_in(const std::vector<MemoryEvent>& events) {
  const auto phases = policies::kept_storages(events, policies::cpu_accounts().phase_names());
  return phases.empty() ? 0 : phases.front().scratch;
}

// `call` takes the arguments from the stack and leaves its results.
Storages storages_made(torch::jit::Stack& stack, const std::function<void(torch::jit::Stack*)>& call,
                       int64_t* scratch = nullptr) {
  policies::cpu_accounts().start_event_log();
  try {
    call(&stack);
  } catch (...) {
    policies::cpu_accounts().stop_event_log();
    throw;
  }
  const std::vector<MemoryEvent> events = policies::cpu_accounts().stop_event_log();
  if (scratch != nullptr) *scratch = scratch_in(events);
  return storages_of(events);
}

// An empty tensor that the operator will give its size is another one.
torch::jit::Stack arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  torch::jit::Stack copy(stack.end() - static_cast<std::ptrdiff_t>(arguments.size()), stack.end());
  for (size_t i = 0; i < copy.size(); ++i) {
    const bool written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    if (written && copy[i].isTensor() && copy[i].toTensor().numel() == 0)
      copy[i] = at::empty_like(copy[i].toTensor());
  }
  return copy;
}

struct CallScope {
  CallScope() { within_call = true; }
  ~CallScope() { within_call = false; }
};

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  const planner::Treatment treatment = planner::treatment_of(op);
  if (within_call || (treatment != planner::Treatment::shapes && treatment != planner::Treatment::own)) {
    op.redispatchBoxed(keys & below, stack);
    return;
  }
  const CallScope scope;
  const std::string name = planner::name_of(op);
  seen.operators.insert(name);
  torch::jit::Stack copy = arguments_of(op, *stack);
  int64_t scratch = 0, planned_scratch = 0;
  const Storages planned = storages_made(
      copy, [&](torch::jit::Stack* arguments) { planner::run_on_cpu(op, keys, arguments); },
      &planned_scratch);
  copy.clear();
  const Storages made = storages_made(
      *stack, [&](torch::jit::Stack* arguments) { op.redispatchBoxed(keys & below, arguments); }, &scratch);
  seen.scratch[name] = std::max(seen.scratch[name], scratch);
  const bool none =
      planner::scratch_kind(op, treatment == planner::Treatment::own) == planner::ScratchKind::none;
  if (none && scratch != planned_scratch) {
    seen.different[name + " scratch"] =
        "planned " + std::to_string(planned_scratch) + "; made " + std::to_string(scratch);
  }
  if (planned != made) seen.different[name] = "planned" + text(planned) + "; made" + text(made);
}

// Runs `job` for real and looks at its operators.
Seen look_at(const std::function<void()>& job) {
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

std::string differences(const Seen& result) {
  std::string lines;
  for (const auto& [op, what] : result.different) lines += op + ": " + what + "\n";
  return lines;
}

// Keeps another operator's result until it ends, which its shape kernel does not tell.
at::Tensor careless_kernel(const at::Tensor& x) {
  const at::Tensor negative = at::neg(x);
  return at::neg(negative);
}
at::Tensor careless_shape(const at::Tensor& x) {
  return at::empty_like(x);
}

TORCH_LIBRARY(kernels_test, m) {
  m.def("careless(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(kernels_test, CPU, m) {
  m.impl("careless", &careless_kernel);
}
TORCH_LIBRARY_IMPL(kernels_test, Meta, m) {
  m.impl("careless", &careless_shape);
}

}  // namespace

TEST_CASE("a kernel that keeps another operator's result until it ends is found") {
  const Seen result = look_at([] {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("kernels_test::careless", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(at::ones({64}));
  });
  CHECK(differences(result) == "kernels_test::careless: planned kept 256; made aten::neg 256 kept 256\n");
}

// `plain`: without policies, and in fp32.
static Seen training_run(const std::string& objective, bool plain) {
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
  config.data.flip = true;
  config.policies.precision.cpu = plain ? "fp32" : "bf16";
  if (plain) {
    config.policies.attention.enabled = policies::Enabled::off;
    config.policies.checkpoint.enabled = policies::Enabled::off;
  }
  Seen result = look_at([&] { world.run(loaded); });
  CHECK(world.listener.finished_at_step == 3);
  return result;
}

TEST_CASE("each operator of a training run makes the storages that a plan says") {
  const std::string objective = GENERATE("rectified_flow", "epsilon", "v", "x0");
  const bool plain = GENERATE(false, true);
  const Seen result = training_run(objective, plain);
  CAPTURE(objective, plain);
  CHECK(result.operators.size() > 30);
  CHECK(result.operators.count("aten::addmm") == 1);
  CHECK(differences(result) == "");
}

TEST_CASE(
    "operators that a plan takes to need no scratch are met in training, and scratch is seen where there is "
    "some") {
  Seen all;
  for (const char* objective : {"rectified_flow", "epsilon"}) {
    for (const bool plain : {false, true}) {
      const Seen one = training_run(objective, plain);
      all.operators.insert(one.operators.begin(), one.operators.end());
      for (const auto& [name, bytes] : one.scratch) all.scratch[name] = std::max(all.scratch[name], bytes);
    }
  }
  std::string unproven;
  for (const std::string& name : planner::operators_without_scratch()) {
    if (all.operators.count(name) == 0) unproven += name + "\n";
  }
  CHECK(unproven == "");
  CHECK(all.scratch["aten::_scaled_dot_product_flash_attention_for_cpu"] > 0);
}
