// Each operator of real jobs on the CPU, planned and run: both must make the same storages, those that
// outlive the call and those of other operators that the kernel keeps until it ends. A job's peak may fall
// within any of them.
//
// A fallback of this program on DispatchKey::Fake, in place of the planner's, does first what the planner
// does with a call and then the call.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/kept_storages.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "by_shapes.h"
#include "call_scratch.h"
#include "cpu_shapes.h"
#include "support/catch.h"
#include "support/run_world.h"

using namespace dtk;
using Catch::Generators::range;
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

// Types, sizes and strides: by them the next operator decides what it makes.
std::string results_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::ostringstream line;
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().returns().size())) {
    if (!value.isTensor()) continue;
    const at::Tensor& result = value.toTensor();
    line << " ";
    if (result.defined())
      line << result.scalar_type() << result.sizes() << ":" << result.strides();
    else
      line << "none";
  }
  return line.str();
}

struct CallScope {
  CallScope() { within_call = true; }
  ~CallScope() { within_call = false; }
};

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  const planner::Treatment treatment = planner::treatment_of(op, *stack);
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
  const std::string planned_results = results_of(op, copy);
  copy.clear();
  const Storages made = storages_made(
      *stack, [&](torch::jit::Stack* arguments) { op.redispatchBoxed(keys & below, arguments); }, &scratch);
  const std::string results = results_of(op, *stack);
  if (planned_results != results)
    seen.different[name + " results"] = "planned" + planned_results + "; made" + results;
  seen.scratch[name] = std::max(seen.scratch[name], scratch);
  const bool open =
      planner::scratch_kind(op, treatment == planner::Treatment::own) == planner::ScratchKind::open;
  if (!open && scratch != planned_scratch) {
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

namespace {

struct Convolution {
  at::DimVector input, weight;
  at::DimVector stride, padding, dilation;
  int64_t groups = 1;
};

// What differs between calls of one shape.
struct ConvolutionCall {
  at::ScalarType type = at::kFloat;
  at::MemoryFormat input = at::MemoryFormat::Contiguous, weight = at::MemoryFormat::Contiguous;
  std::array<bool, 3> wanted = {true, true, true};  // gradients of input, weight and bias
  bool bias = true;
  bool expanded = false;  // the gradient of the result, as a sum's
};

void forward_and_backward(const Convolution& shape, const ConvolutionCall& call) {
  const auto leaf = [&](at::IntArrayRef sizes, at::MemoryFormat format, bool gradient) {
    return at::randn(sizes).to(call.type).contiguous(format).requires_grad_(gradient);
  };
  const at::Tensor x = leaf(shape.input, call.input, call.wanted[0]);
  const at::Tensor weight = leaf(shape.weight, call.weight, call.wanted[1]);
  std::optional<at::Tensor> bias;
  if (call.bias) bias = leaf({shape.weight[0]}, at::MemoryFormat::Contiguous, call.wanted[2]);
  const at::DimVector no_padding(shape.stride.size(), 0);
  const at::Tensor y = at::convolution(x, weight, bias, shape.stride, shape.padding, shape.dilation,
                                       /*transposed=*/false, no_padding, shape.groups);
  const at::Tensor grad = call.expanded ? at::ones({}, y.options()).expand(y.sizes())
                                        : at::randn(y.sizes()).to(call.type).contiguous(call.input);
  torch::autograd::backward({y}, {grad});
}

// Looks at `call` with each set of gradients wanted, with and without bias; `backward`: an operator that must
// then be met where weights have a gradient.
void check_convolution(const Convolution& shape, ConvolutionCall call, const std::string& forward,
                       const std::string& backward) {
  for (int mask = 1; mask < 8; ++mask) {
    for (const bool bias : {true, false}) {
      call.wanted = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
      call.bias = bias;
      if (call.wanted[2] && !bias) continue;
      const Seen result = look_at([&] { forward_and_backward(shape, call); });
      CAPTURE(shape.input, shape.weight, call.type, call.input, call.weight, call.expanded, mask, bias);
      CHECK(differences(result) == "");
      CHECK(result.operators.count(forward) == 1);
      CHECK((mask == 1 || backward.empty() || result.operators.count(backward) == 1));
    }
  }
}

// A processor may lack what oneDNN needs for bf16; LibTorch then has other kernels.
bool onednn_takes(at::ScalarType type) {
  const at::Tensor x = at::zeros({16, 3, 8, 8}, type), weight = at::zeros({20, 3, 2, 2}, type);
  const std::array<c10::SymInt, 2> two = {2, 2}, none = {0, 0}, one = {1, 1};
  return at::native::select_conv_backend(x, weight, std::nullopt, two, none, one, /*transposed=*/false, none,
                                         1, std::nullopt) == at::native::ConvBackend::Mkldnn;
}

const std::array<Convolution, 6> kPlanes = {{
    {{16, 3, 8, 8}, {20, 3, 2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {{2, 16, 9, 7}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{20, 6, 5, 5}, {9, 6, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {{4, 12, 9, 9}, {18, 4, 3, 3}, {1, 2}, {1, 0}, {1, 1}, 3},
    {{4, 16, 6, 6}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 16},
    {{3, 8, 12, 10}, {24, 8, 3, 2}, {2, 1}, {2, 0}, {2, 3}},
}};

}  // namespace

TEST_CASE("convolutions with oneDNN make the storages and the results that a plan says") {
  const Convolution& shape = kPlanes.at(GENERATE(range(size_t{0}, size_t{6})));
  ConvolutionCall call;
  call.type = GENERATE(at::kFloat, at::kBFloat16);
  if (call.type == at::kBFloat16 && !onednn_takes(call.type)) return;
  call.expanded = GENERATE(false, true);
  SECTION("contiguous") {
    check_convolution(shape, call, "aten::mkldnn_convolution", "aten::convolution_backward");
  }
  SECTION("channels last") {
    call.input = call.weight = at::MemoryFormat::ChannelsLast;
    check_convolution(shape, call, "aten::mkldnn_convolution", "");
  }
  SECTION("one of both channels last") {
    (call.expanded ? call.input : call.weight) = at::MemoryFormat::ChannelsLast;
    check_convolution(shape, call, "aten::mkldnn_convolution", "");
  }
}

TEST_CASE("convolutions with oneDNN in one and in three dimensions") {
  const Convolution line{{4, 6, 31}, {10, 6, 5}, {2}, {2}, {1}};
  const Convolution grouped_line{{4, 6, 31}, {8, 3, 5}, {1}, {0}, {3}, 2};
  for (const Convolution& shape : {line, grouped_line}) {
    for (const bool expanded : {false, true})
      check_convolution(shape, {.expanded = expanded}, "aten::mkldnn_convolution",
                        "aten::convolution_backward");
  }
  const Convolution volume{{2, 4, 6, 7, 5}, {8, 4, 3, 2, 1}, {1, 2, 1}, {1, 0, 0}, {1, 1, 1}};
  check_convolution(volume, {}, "aten::mkldnn_convolution", "aten::convolution_backward");
  check_convolution(volume, {.input = at::MemoryFormat::ChannelsLast3d}, "aten::mkldnn_convolution", "");
}

TEST_CASE("convolutions without oneDNN make the storages and the results that a plan says") {
  const Convolution& shape = kPlanes.at(GENERATE(range(size_t{0}, size_t{5})));
  ConvolutionCall call{.type = at::kDouble};
  call.input = GENERATE(at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast);
  call.expanded = GENERATE(false, true);
  check_convolution(shape, call, "aten::_slow_conv2d_forward", "aten::_slow_conv2d_backward.output_mask");
}

TEST_CASE("batch normalisation makes the storages and the results that a plan says") {
  const bool planes = GENERATE(true, false), train = GENERATE(true, false), affine = GENERATE(true, false);
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16);
  const int layout = planes ? GENERATE(0, 1, 2) : GENERATE(0, 1);  // contiguous, with gaps, channels last
  CAPTURE(planes, train, affine, type, layout);
  const Seen result = look_at([&] {
    at::Tensor x = (planes ? at::randn({6, 10, 5, 4}) : at::randn({6, 10})).to(type);
    if (layout == 1) x = x.transpose(0, 1).contiguous().transpose(0, 1);
    if (layout == 2) x = x.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor w = affine ? at::ones({10}).requires_grad_() : at::Tensor(), mean = at::zeros({10});
    const at::Tensor y = at::batch_norm(x.requires_grad_(), w, w, mean, mean + 1, train, 0.1, 1e-5, true);
    torch::autograd::backward({y}, {at::randn_like(y)});
  });
  CHECK(differences(result) == "");
}

TEST_CASE("relu makes the storages that a plan says, in place too") {
  const Seen result = look_at([] {
    const at::Tensor x = at::randn({8, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    at::Tensor y = at::relu(x).mul(2);
    at::relu_(y);
    torch::autograd::backward({y}, {at::randn_like(y)});
  });
  CHECK(differences(result) == "");
  CHECK(result.operators.count("aten::threshold_backward") == 1);
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
