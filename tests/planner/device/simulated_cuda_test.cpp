// CUDA's own paths of the policies on the simulated device: autocast's lists, the backward pass on a thread
// of the engine, page-locked memory, random state, statistics. Values are not proved: there are none.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <dtk/planner/device_terms.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/attention.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/internal/device_statistics.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <set>
#include <thread>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/device/test_device.h"

using namespace dtk::policies;
using dtk::planner::DeviceTerm;
using dtk::planner::SimulationResult;

namespace {

using dtk::test::kCuda;

const DeviceTerm& term(const SimulationResult& plan, const std::string& name) {
  const auto found = std::find_if(plan.terms.begin(), plan.terms.end(),
                                  [&](const DeviceTerm& one) { return one.name == name; });
  REQUIRE(found != plan.terms.end());
  return *found;
}

}  // namespace

TEST_CASE("autocast follows CUDA's lists: products in bf16, norms, softmax and losses in fp32") {
  const at::Tensor x = at::ones({2, 8}, kCuda).requires_grad_(true),
                   w = at::ones({8, 8}, kCuda).requires_grad_(true);
  const AutocastGuard bf16(c10::kCUDA, true);
  const at::Tensor product = at::linear(x, w);
  CHECK(product.scalar_type() == at::kBFloat16);
  CHECK(at::softmax(product, -1).scalar_type() == at::kFloat);  // bf16 on the CPU
  CHECK(at::layer_norm(product, {8}).scalar_type() == at::kFloat);
  CHECK(at::gelu(product).scalar_type() == at::kBFloat16);
  const at::Tensor loss = at::mse_loss(product, at::ones({2, 8}, kCuda));
  CHECK(loss.scalar_type() == at::kFloat);
  torch::autograd::backward({loss}, {});
  CHECK(w.grad().scalar_type() == at::kFloat);
  CHECK(w.grad().device() == kCuda);
}

TEST_CASE(
    "a backward pass runs on the device before, within and after the engine of the saved-tensor stack") {
  const auto backward_thread = [] {
    std::thread::id thread;
    const at::Tensor w = at::ones({4}, kCuda).requires_grad_(true);
    w.register_hook([&](const at::Tensor&) { thread = std::this_thread::get_id(); });
    torch::autograd::backward({w.mul(2).sum()}, {});
    return thread;
  };
  CHECK(backward_thread() != std::thread::id());
  {
    const SavedTensorEngineGuard engine;
    CHECK(backward_thread() != std::thread::id());
  }
  CHECK(backward_thread() != std::thread::id());
}

TEST_CASE("backward recomputes on a thread of the engine, within the casts and the module path of forward") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  struct Run {
    std::thread::id thread;
    bool bf16;
    std::string path;
    bool again;
  };
  std::vector<Run> runs;
  const at::Tensor w = at::ones({8, 8}, kCuda).requires_grad_(true);
  const ModuleFn block = [&](Tensors&& in) {
    runs.push_back({std::this_thread::get_id(), at::autocast::is_autocast_enabled(c10::kCUDA), module_path(),
                    recomputing()});
    at::Tensor h = at::linear(in[0], w);
    return Tensors{at::gelu(h)};
  };
  at::Tensor loss;
  {
    const SavedTensorScope ledger(saved_tensor_ledger());
    const AutocastGuard bf16(c10::kCUDA, true);
    const ModulePathScope path("blocks.7");
    loss = checkpoint("blocks.7", block, {at::ones({2, 8}, kCuda)})[0].sum();
  }
  torch::autograd::backward({loss}, {});
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].thread == std::this_thread::get_id());
  CHECK(runs[1].thread != std::this_thread::get_id());
  CHECK(runs[0].bf16);
  CHECK(runs[1].bf16);
  CHECK(runs[0].path == runs[1].path);
  CHECK_FALSE(runs[0].again);
  CHECK(runs[1].again);
}

TEST_CASE("the allocator's statistics and the books give the same peak of each phase") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  DeviceStatistics statistics(kCuda);
  const PhaseMeterRegistration meter(statistics), books(device_accounts());
  device_accounts().reset_phases("build");
  const at::Tensor w = at::ones({64, 64}, kCuda).requires_grad_(true);
  for (int step = 0; step < 2; ++step) {
    at::Tensor loss;
    {
      const PhaseScope phase("forward");
      loss = at::linear(at::ones({3, 64}, kCuda), w).pow(2).sum();
    }
    const PhaseScope phase("backward");
    torch::autograd::backward({loss}, {});
  }
  const auto by_statistics = statistics.phases(), by_books = device_accounts().phases();
  REQUIRE(by_statistics.size() == by_books.size());
  for (size_t i = 0; i < by_books.size(); ++i) {
    CAPTURE(by_books[i].name);
    CHECK(by_statistics[i].name == by_books[i].name);
    CHECK(by_statistics[i].peak.bytes == by_books[i].peak.bytes);
    CHECK(by_books[i].peak.bytes > 0);
  }
}

TEST_CASE("page-locked memory is the host's, can be read, and is known by its address") {
  const at::Tensor pinned = at::empty({3}, at::TensorOptions().pinned_memory(true)), plain = at::empty({3});
  CHECK(pinned.is_cpu());
  CHECK(pinned.is_pinned());
  CHECK(pinned.narrow(0, 2, 1).is_pinned());
  CHECK_FALSE(plain.is_pinned());
  pinned.mutable_data_ptr<float>()[2] = 5.0f;
  CHECK(pinned.const_data_ptr<float>()[2] == 5.0f);
}

TEST_CASE("the device's random state is saved, put back and set by a seed") {
  const at::Generator& generator = at::globalContext().defaultGenerator(kCuda);
  CHECK(generator.device() == kCuda);
  at::manual_seed(5);
  const std::string five = generator_state(generator);
  at::manual_seed(6);
  const std::string six = generator_state(generator);
  CHECK(five != six);
  std::string state = five;
  {
    const DefaultGeneratorScope scope(kCuda, state);
    CHECK(generator_state(generator) == five);
  }
  CHECK(generator_state(generator) == six);
  CHECK(generator_state(make_generator(kCuda, 5)) == five);
}

TEST_CASE("the terms of a device are exact sums of what the job asked for, and each can be left out") {
  const auto job = [](const dtk::planner::EndOfPlan&) {
    const at::Tensor a = at::empty({3}, kCuda), b = at::empty({129}, kCuda);  // 12 of 512, 516 of 1024 bytes
    const at::Tensor pinned = at::empty({5}, at::TensorOptions().pinned_memory(true));  // 20 of 32 bytes
    const at::Tensor w = at::ones({8, 8}, kCuda).requires_grad_(true), bias = at::ones({8}, kCuda);
    torch::autograd::backward({at::linear(at::ones({2, 8}, kCuda), w, bias).sum()}, {});
  };
  dtk::planner::SimulationOptions options;
  const SimulationResult plan = dtk::planner::simulate(kCuda, job, options);
  CHECK(plan.terms.size() == 6);
  CHECK(term(plan, "pinned").bytes == 12);
  CHECK(term(plan, "pinned").on_host);
  // The training thread multiplies with the bias, the engine's without.
  CHECK(term(plan, "workspaces").bytes == 2 * (32 << 20) + (1 << 20));
  CHECK(term(plan, "context").bytes == 880'000'000);
  CHECK(term(plan, "attention_scratch").bytes == 0);
  CHECK(term(plan, "rounding").bytes > 500 + 508);
  CHECK(bytes_beside(plan.terms) ==
        term(plan, "rounding").bytes + term(plan, "workspaces").bytes + term(plan, "context").bytes);
  for (const DeviceTerm& one : plan.terms) {
    CHECK_FALSE(one.measured);
    CHECK_FALSE(one.formula.empty());
    CHECK_FALSE(one.source.empty());
  }
  options.terms = {.rounding = false,
                   .attention_scratch = false,
                   .reduction_scratch = false,
                   .workspaces = true,
                   .kernel_scratch = false,
                   .context = false,
                   .pinned = false,
                   .compute_capability = 80};
  const SimulationResult less = dtk::planner::simulate(kCuda, job, options);
  REQUIRE(less.terms.size() == 1);
  CHECK(term(less, "workspaces").bytes == 2 * 8320 * 1024 + (1 << 20));
  CHECK(highest(less.device).peak.bytes == highest(plan.device).peak.bytes);
}

TEST_CASE("what cuDNN takes for a convolution is said not to be known") {
  dtk::planner::SimulationOptions options;
  const auto job = [](const dtk::planner::EndOfPlan&) {
    const at::Tensor w = at::ones({4, 3, 2, 2}, kCuda);
    for (const int64_t n : {1, 2, 2}) at::conv2d(at::ones({n, 3, 8, 8}, kCuda), w, {}, 2);
  };
  const SimulationResult plan = dtk::planner::simulate(kCuda, job, options);
  const DeviceTerm& one = term(plan, "convolution_workspaces");
  CHECK_FALSE(one.known);
  CHECK(one.bytes == 0);
  CHECK(one.formula.starts_with("none: for each convolution, of 2 different sizes here,"));
  options.terms.convolution_workspaces = false;
  CHECK(dtk::planner::simulate(kCuda, job, options).terms.size() == plan.terms.size() - 1);
}

TEST_CASE(
    "what a CUDA kernel may take for itself is named by operator, and element-wise kernels take nothing") {
  dtk::planner::SimulationOptions options;
  const auto job = [](bool sums) {
    return [sums](const dtk::planner::EndOfPlan&) {
      const at::Tensor x = at::ones({8, 64}, kCuda);
      const at::Tensor y = at::softmax(at::gelu(x + x), 1);
      if (sums) at::softmax(y.amax(0, true).t(), 0);
      if (sums) at::softmax(y.t(), 1);
    };
  };
  for (const DeviceTerm& one : dtk::planner::simulate(kCuda, job(false), options).terms)
    CHECK(one.name != "kernel_scratch");
  const SimulationResult plan = dtk::planner::simulate(kCuda, job(true), options);
  const DeviceTerm& one = term(plan, "kernel_scratch");
  CHECK_FALSE(one.known);
  CHECK(one.bytes == 0);
  CHECK(one.formula.ends_with("for a copy in another layout: aten::_softmax, aten::amax"));
  options.terms.kernel_scratch = false;
  CHECK(dtk::planner::simulate(kCuda, job(true), options).terms.size() == plan.terms.size() - 1);
}

TEST_CASE("a layer norm of another layout is copied for the length of its call") {
  constexpr int64_t kBytes = 4 * 32 * 64;
  const auto peak = [](bool contiguous) {
    const SimulationResult plan = dtk::planner::simulate(
        kCuda,
        [&](const dtk::planner::EndOfPlan&) {
          const at::Tensor x = contiguous ? at::ones({32, 64}, kCuda) : at::ones({64, 32}, kCuda).t();
          at::layer_norm(x, {64});
        },
        {});
    return highest(plan.device).peak.bytes;
  };
  CHECK(peak(true) == 2 * kBytes + 2 * 4 * 32);
  CHECK(peak(false) == 3 * kBytes + 2 * 4 * 32);
}

TEST_CASE("a sum over many rows takes what its blocks of threads add up in") {
  const auto most = [](const SimulationResult& plan) { return term(plan, "reduction_scratch").bytes; };
  const auto sums = [](at::IntArrayRef sizes, at::IntArrayRef over, at::ScalarType type) {
    return [=, sizes = sizes.vec(), over = over.vec()](const dtk::planner::EndOfPlan&) {
      at::sum(at::empty(sizes, at::TensorOptions().device(kCuda).dtype(type)), over);
    };
  };
  // As an H200 took it, in fp32 and in bf16 alike: 128 parts, four results and 32 columns a thread's row of
  // fp32; a counter for each of 12 blocks.
  constexpr int64_t kMeasured = 4 * 1536 * 128 * 128 + 4 * 12;
  dtk::planner::SimulationOptions options;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const SimulationResult plan = dtk::planner::simulate(kCuda, sums({8, 1024, 1536}, {0, 1}, type), options);
    CHECK(most(plan) == kMeasured);
    // Beside the input and the sums, and gone with the call.
    const int64_t tensors = (8 * 1024 + 1) * 1536 * static_cast<int64_t>(c10::elementSize(type));
    CHECK(highest(plan.device).peak.bytes == tensors + kMeasured);
    CHECK(highest(plan.device).peak.of(Category::scratch) == kMeasured);
  }
  // Few rows, few values a row, or results enough for every block: nothing.
  CHECK(most(dtk::planner::simulate(kCuda, sums({512, 1536}, {0}, at::kFloat), options)) == 0);
  CHECK(most(dtk::planner::simulate(kCuda, sums({64, 256}, {1}, at::kFloat), options)) == 0);
  CHECK(most(dtk::planner::simulate(kCuda, sums({4096, 65536}, {1}, at::kFloat), options)) == 0);
  // One number of all: a part for each block, no columns.
  CHECK(most(dtk::planner::simulate(kCuda, sums({1 << 20}, {}, at::kFloat), options)) == 4 * 128 + 4);
  options.terms.multiprocessors = 12;  // 16 blocks each
  CHECK(most(dtk::planner::simulate(kCuda, sums({8192, 1536}, {0}, at::kFloat), options)) ==
        4 * 1536 * 16 * 128 + 4 * 12);
  options.terms.reduction_scratch = false;
  const SimulationResult without =
      dtk::planner::simulate(kCuda, sums({8192, 1536}, {0}, at::kFloat), options);
  CHECK(highest(without.device).peak.of(Category::scratch) == 0);
}

TEST_CASE(
    "LibTorch prefers cuDNN's attention on Hopper, and takes flash where that is left out or there is none") {
  constexpr int64_t N = 2, H = 3, T = 200, D = 64;
  const auto job = [](bool allowed) {
    return [allowed](const dtk::planner::EndOfPlan&) {
      const SavedTensorEngineGuard engine;
      const AttentionBackendGuard chosen({.cudnn = allowed});
      const at::Tensor q = at::ones({N, T, H, D}, at::TensorOptions().device(kCuda).dtype(at::kBFloat16))
                               .transpose(1, 2)
                               .requires_grad_(true);
      torch::autograd::backward({at::scaled_dot_product_attention(q, q, q)}, {at::ones_like(q)});
    };
  };
  const auto scratch = [&](bool allowed, int capability) {
    dtk::planner::SimulationOptions options;
    options.terms.compute_capability = capability;
    return term(dtk::planner::simulate(kCuda, job(allowed), options), "attention_scratch").bytes;
  };
  constexpr int64_t kCudnn = 4 * N * H * T * (D + 1) + 256, kFlash = 4 * N * H * 256 * (D + 1);
  CHECK(scratch(true, 90) == kCudnn);
  CHECK(scratch(true, 100) == kCudnn);
  CHECK(scratch(true, 80) == kFlash);
  CHECK(scratch(false, 90) == kFlash);
  CHECK(4 * 8 * 16 * 200 * (72 + 1) + 256 == 7'475'456);  // as an H200 took it for (8, 16, 200, 72)
}

TEST_CASE("the policy takes the kernel that its options name, and refuses one that no call can take") {
  std::string taken, refused;
  std::string reason;
  const auto job = [&](AttentionKernel kernel, at::ScalarType type, Enabled enabled) {
    return [&, kernel, type, enabled](const dtk::planner::EndOfPlan&) {
      const SavedTensorEngineGuard engine;
      AttentionPolicy policy({.enabled = enabled, .kernel = kernel});
      Seam seam;
      policy.apply(seam);
      const at::Tensor q =
          at::ones({2, 3, 64, 8}, at::TensorOptions().device(kCuda).dtype(type)).requires_grad_(true);
      const at::Tensor out = seam.attention(q, q, q, {});
      taken = out.grad_fn()->name();
      reason = policy.report().reason;
      try {
        policy.before_step();
        refused.clear();
      } catch (const PolicyError& error) {
        refused = error.what();
      }
    };
  };
  const auto take = [&](AttentionKernel kernel, at::ScalarType type, Enabled enabled = Enabled::by_default) {
    dtk::planner::simulate(kCuda, job(kernel, type, enabled));
    return taken;
  };
  CHECK(take(AttentionKernel::flash, at::kBFloat16) == "ScaledDotProductFlashAttentionBackward0");
  CHECK(take(AttentionKernel::flash, at::kFloat) == "ScaledDotProductEfficientAttentionBackward0");
  CHECK(take(AttentionKernel::efficient, at::kBFloat16) == "ScaledDotProductEfficientAttentionBackward0");
  CHECK(take(AttentionKernel::cudnn, at::kBFloat16) == "ScaledDotProductCudnnAttentionBackward0");
  CHECK(reason == "fused kernels, no weights are stored");
  // Not asked for, as in a row of a table whose precision is switched off.
  take(AttentionKernel::cudnn, at::kFloat);
  CHECK(refused.empty());
  CHECK(reason ==
        "fused kernels, no weights are stored; kernel cudnn in 0 of 1 calls, not for q [2, 3, 64, 8] Float "
        "on cuda:0");
  take(AttentionKernel::cudnn, at::kFloat, Enabled::on);
  CHECK(refused ==
        "policies.attention.kernel = \"cudnn\" has no effect: LibTorch took it for no call (q [2, 3, 64, 8] "
        "Float on "
        "cuda:0); set policies.attention.kernel = \"flash\"");
}

TEST_CASE("attention's backward takes fp32 sums for itself, booked as scratch") {
  constexpr int64_t N = 2, H = 3, T = 200, D = 72;
  const auto job = [](at::ScalarType type) {
    return [type](const dtk::planner::EndOfPlan&) {
      const SavedTensorEngineGuard engine;
      const AttentionBackendGuard no_cudnn({.cudnn = false});
      const auto options = at::TensorOptions().device(kCuda).dtype(type);
      const at::Tensor q = at::ones({N, H, T, D}, options).requires_grad_(true);
      torch::autograd::backward({at::scaled_dot_product_attention(q, q, q).sum()}, {});
    };
  };
  const auto scratch = [](const SimulationResult& plan) {
    int64_t most = 0;
    for (const PhasePeak& phase : plan.device) most = std::max(most, phase.peak.of(Category::scratch));
    return most;
  };
  const SimulationResult flash = dtk::planner::simulate(kCuda, job(at::kBFloat16));
  CHECK(term(flash, "attention_scratch").bytes == N * 256 * H * 96 * 4 + N * H * 256 * 4);
  CHECK(scratch(flash) == term(flash, "attention_scratch").bytes);
  const SimulationResult efficient = dtk::planner::simulate(kCuda, job(at::kFloat));
  CHECK(term(efficient, "attention_scratch").bytes == N * T * H * D * 4 + 2 * N * H * T * 4);
  dtk::planner::SimulationOptions without;
  without.terms.attention_scratch = false;
  CHECK(scratch(dtk::planner::simulate(kCuda, job(at::kBFloat16), without)) == 0);
}
