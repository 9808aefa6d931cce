// The ledger on real tensors: exact bytes, and whose they are.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <thread>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

int64_t live(Category category) {
  return cpu_accounts().live().of(category);
}

int64_t live(Category category, const std::string& label) {
  const auto items = cpu_accounts().live().items();
  const auto found = items.find(category);
  return found == items.end() || found->second.count(label) == 0 ? 0 : found->second.at(label);
}

}  // namespace

TEST_CASE("requested bytes of tensors are counted exactly, in the block's own header") {
  CountingAllocatorGuard guard;
  const int64_t before = cpu_accounts().live_bytes();
  {
    const at::Tensor a = at::empty({3, 5}, at::kFloat);
    CHECK(cpu_accounts().live_bytes() - before == 60);
    const at::Tensor b = at::ones({1000}, at::kDouble);
    CHECK(cpu_accounts().live_bytes() - before == 60 + 8000);
    const at::Tensor view = b.narrow(0, 10, 5);  // shares the storage
    const at::Tensor none = at::empty({0});
    CHECK(cpu_accounts().live_bytes() - before == 60 + 8000);
    CHECK(reinterpret_cast<uintptr_t>(a.const_data_ptr()) % 64 == 0);
    CHECK(counted_block(view)->bytes == 8000);
    CHECK(counted_block(none) == nullptr);
  }
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("blocks may be freed by another thread, and after the guard has ended") {
  const int64_t before = cpu_accounts().live_bytes();
  at::Tensor tensor;
  {
    CountingAllocatorGuard guard;
    tensor = at::ones({100});
    CHECK(cpu_accounts().live_bytes() - before == 400);
  }
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("the guard puts the former allocator back, also when an exception passes") {
  c10::Allocator* const stock = c10::GetCPUAllocator();
  try {
    CountingAllocatorGuard guard;
    CHECK(c10::GetCPUAllocator() != stock);
    throw std::runtime_error("passing");
  } catch (const std::runtime_error&) {
  }
  CHECK(c10::GetCPUAllocator() == stock);
  const int64_t before = cpu_accounts().live_bytes();
  const at::Tensor uncounted = at::ones({100});
  CHECK(cpu_accounts().live_bytes() == before);
  CHECK(counted_block(uncounted) == nullptr);
  claim(uncounted, Category::data, "nothing happens");
}

TEST_CASE("a temporary belongs to the innermost operator that is more than an allocation") {
  CountingAllocatorGuard guard;
  const at::Tensor a = at::ones({8, 8}), b = at::ones({8, 8});
  const int64_t mm = live(Category::temporaries, "aten::mm");
  const at::Tensor product = at::matmul(a, b);
  CHECK(live(Category::temporaries, "aten::mm") - mm == 256);
  const at::Tensor norm = at::layer_norm(a, {8});
  CHECK(live(Category::temporaries, "aten::native_layer_norm") >= 256);
}

TEST_CASE("an owner scope claims what its thread allocates; scopes nest") {
  CountingAllocatorGuard guard;
  at::Tensor outer, inner, after, other_thread;
  {
    OwnerScope data(Category::data, "batches");
    outer = at::zeros({10});
    {
      OwnerScope ema(Category::ema, "shadow");
      inner = at::zeros({20});
      std::thread([&] { other_thread = at::zeros({40}); }).join();
    }
    after = at::zeros({30});
  }
  CHECK(live(Category::data, "batches") == 160);
  CHECK(live(Category::ema, "shadow") == 80);
  CHECK(live(Category::temporaries, "aten::zeros") >= 160);  // the other thread is in no scope
  claim(outer, Category::parameters, "weights");
  CHECK(live(Category::data, "batches") == 120);
  CHECK(live(Category::parameters, "weights") == 40);
}

TEST_CASE("a host tier scope counts what its thread allocates in accounts of their own, until it is freed") {
  CountingAllocatorGuard guard;
  const int64_t device = cpu_accounts().live_bytes(), host = host_accounts().live_bytes();
  at::Tensor inner;
  {
    HostTierScope tier;
    OwnerScope owner(Category::ema, "shadow");
    inner = at::zeros({10});
    { HostTierScope nested; }
    const at::Tensor still = at::zeros({5});
    CHECK(host_accounts().live_bytes() - host == 60);
    at::Tensor other_thread;
    std::thread([&] { other_thread = at::zeros({7}); }).join();
    CHECK(cpu_accounts().live_bytes() - device == 28);  // the other thread is in no scope
  }
  const at::Tensor outer = at::zeros({3});
  CHECK(cpu_accounts().live_bytes() - device == 12);
  CHECK(host_accounts().live_bytes() - host == 40);
  CHECK(host_accounts().live().of(Category::ema) == 40);
  claim(inner, Category::data, "cache");
  CHECK(host_accounts().live().of(Category::data) == 40);
  CHECK((host_accounts().walk().items() == host_accounts().live().items()));
  std::thread([moved = std::move(inner)]() mutable { moved.reset(); }).join();
  CHECK(host_accounts().live_bytes() == host);
  CHECK(cpu_accounts().live_bytes() - device == 12);
}

TEST_CASE("a tensor saved for backward stays in the accounts of its tier") {
  CountingAllocatorGuard guard;
  SavedTensorEngineGuard engine;
  const int64_t host = host_accounts().live().of(Category::saved), device = live(Category::saved);
  const at::Tensor x = at::ones({8}).requires_grad_(true);
  at::Tensor y;
  {
    SavedTensorScope scope(saved_tensor_ledger());
    HostTierScope tier;
    y = x.exp();  // keeps its result
  }
  CHECK(host_accounts().live().of(Category::saved) - host == 32);
  torch::autograd::backward({y.sum()}, {});
  CHECK(host_accounts().live().of(Category::saved) == host);
  CHECK(live(Category::saved) == device);
}

TEST_CASE("phases see the peak of each tier apart") {
  CountingAllocatorGuard guard;
  cpu_accounts().reset_phases("build");
  host_accounts().reset_phases("build");
  const int64_t host = host_accounts().live_bytes();
  {
    PhaseScope phase("forward");
    HostTierScope tier;
    const at::Tensor block = at::empty({1000});
  }
  CHECK(host_accounts().phases().back().name == "forward");
  CHECK(host_accounts().phases().back().peak.bytes - host == 4000);
  CHECK(cpu_accounts().phases().back().peak.bytes == cpu_accounts().live_bytes());
}

TEST_CASE("memory taken outside any operator is other") {
  CountingAllocatorGuard guard;
  const at::DataPtr raw = c10::GetCPUAllocator()->allocate(123);
  CHECK(live(Category::other, "outside any operator") == 123);
}

TEST_CASE("saved tensors are counted by module path while autograd holds them, once per storage") {
  CountingAllocatorGuard guard;
  SavedTensorEngineGuard engine;
  at::Tensor weight = at::randn({16, 16}).requires_grad_(true);
  claim(weight, Category::parameters, "weight");
  at::Tensor loss;
  {
    SavedTensorScope scope(saved_tensor_ledger());
    ModulePathScope path("blocks.0");
    at::Tensor h = at::ones({4, 16});
    claim(h, Category::data, "input");
    h = at::linear(h, weight);  // keeps the input (data) and the weight (parameter): no saved bytes
    CHECK(live(Category::saved) == 0);
    h = at::gelu(h, "tanh");  // keeps its input, 4 x 16 floats
    CHECK(live(Category::saved, "blocks.0") == 256);
    {
      ModulePathScope inner("blocks.1");
      h = h * h;  // keeps h twice: one storage
    }
    CHECK(live(Category::saved, "blocks.1") == 256);
    loss = h.sum();
  }
  CHECK(live(Category::saved) == 512);
  torch::autograd::backward({loss}, {});
  CHECK(live(Category::saved) == 0);
}

TEST_CASE("a gradient belongs to gradients from the instant it is written") {
  CountingAllocatorGuard guard;
  at::Tensor weight = at::randn({32, 32}).requires_grad_(true);
  claim_gradient_when_written(weight, "blocks.0");
  torch::autograd::backward({at::mm(at::ones({4, 32}), weight).sum()}, {});
  CHECK(live(Category::gradients, "blocks.0") == 4096);
  weight.mutable_grad().reset();
  CHECK(live(Category::gradients) == 0);
  at::Tensor frozen = at::ones({2});
  claim_gradient_when_written(frozen, "frozen");  // no effect, no error
}

TEST_CASE("phases see the peak of real work, and the walk over all blocks agrees with the sums") {
  CountingAllocatorGuard guard;
  cpu_accounts().reset_phases("build");
  const int64_t before = cpu_accounts().live_bytes();
  {
    PhaseScope phase("forward");
    at::Tensor a = at::ones({1000});
    a = a.neg();  // both alive for a moment
  }
  for (const PhasePeak& phase : cpu_accounts().phases()) {
    if (phase.name == "forward") CHECK(phase.peak.bytes - before == 8000);
  }
  CHECK((cpu_accounts().walk().items() == cpu_accounts().live().items()));
}

TEST_CASE("out of memory says who asked for how much and what is alive") {
  CountingAllocatorGuard guard;
  try {
    at::empty({int64_t{1} << 50}, at::kFloat);
    FAIL("four petabytes were allocated");
  } catch (const c10::OutOfMemoryError& error) {
    const std::string message = error.what_without_backtrace();
    CHECK(message.find("out of CPU memory: 4503599627370496 bytes asked for by aten::empty") == 0);
  }
}

TEST_CASE("what a kernel takes and frees within its call is scratch, and depends on nothing else") {
  CountingAllocatorGuard guard;
  const at::Tensor q = at::randn({2, 4, 64, 32});
  const auto peak_with = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    cpu_accounts().reset_phases("build");
    { const at::Tensor out = at::scaled_dot_product_attention(q, q, q); }
    at::set_num_threads(before);
    return highest(cpu_accounts().phases()).peak;
  };
  const MemorySums one = peak_with(1), two = peak_with(2);
  CHECK(one.of(Category::scratch) == 12544);  // one block of scores and sums per thread
  CHECK(two.of(Category::scratch) == 2 * 12544);
  CHECK(one.items().at(Category::scratch).count("aten::_scaled_dot_product_flash_attention_for_cpu") == 1);
  CHECK(one.of(Category::temporaries) == two.of(Category::temporaries));
  CHECK(one.bytes - 12544 == two.bytes - 2 * 12544);
}

TEST_CASE("the ledger refuses to lie above another layer, which might let its blocks go") {
  struct Passing final : SavedTensorLayer {
    std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
      return below.pack(tensor);
    }
  };
  CountingAllocatorGuard guard;
  SavedTensorEngineGuard engine;
  const at::Tensor x = at::ones({4}).requires_grad_(true);
  SavedTensorScope lower(std::make_shared<Passing>());
  SavedTensorScope ledger(saved_tensor_ledger());
  CHECK_THROWS_WITH(x.exp(),
                    Catch::Contains("memory ledger: it must be the lowest layer of the saved-tensor stack"));
}

TEST_CASE("oneDNN takes its memory from the counting allocator") {
  CountingAllocatorGuard guard;
  const at::Tensor x = at::randn({4, 16, 32, 32}), w = at::randn({16, 16, 3, 3});
  cpu_accounts().reset_phases("build");
  const at::Tensor y = at::conv2d(x, w, {}, 1, 1);
  CHECK(y.sizes() == at::IntArrayRef({4, 16, 32, 32}));
}

namespace {

/// What a budget of `room` more bytes refuses of `action`.
RefusedAllocation refused_with(int64_t room, const std::function<void()>& action) {
  const MemoryBudgetGuard budget(cpu_accounts(), cpu_accounts().live_bytes() + room);
  try {
    action();
  } catch (const c10::OutOfMemoryError& error) {
    return dynamic_cast<const AllocationRefused&>(error).refused;
  }
  return {};
}

}  // namespace

TEST_CASE("a refusal names phase and module path, in forward and in backward") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  SavedTensorScope ledger(saved_tensor_ledger());
  at::Tensor x = at::ones({1000}).requires_grad_(true), y;
  {
    PhaseScope phase("forward");
    ModulePathScope path("blocks.3");
    const RefusedAllocation refused = refused_with(100, [&] { y = x.exp(); });
    CHECK(refused.bytes == 4000);
    CHECK(refused.asked_by == "aten::exp");
    CHECK(refused.phase == "forward");
    CHECK(refused.module_path == "blocks.3");
    CHECK(refused.live.bytes == cpu_accounts().live_bytes());
    y = x.exp();
  }
  const at::Tensor loss = y.sum();
  y.reset();
  {
    PhaseScope phase("backward");
    const RefusedAllocation refused = refused_with(100, [&] { torch::autograd::backward({loss}, {}); });
    CHECK(refused.bytes == 4000);
    CHECK(refused.phase == "backward");
    CHECK(refused.module_path == "blocks.3");  // of exp's result, which its node unpacked
  }
  CHECK(refused_with(100, [] { at::empty({101}, at::kByte); }).module_path == "");
}

TEST_CASE("a budget refuses what does not fit, and not what a guard needs to put the random state back") {
  CountingAllocatorGuard counting;
  const at::Generator generator = make_generator(at::kCPU, 1);
  const std::string state = generator_state(generator);
  const MemoryBudgetGuard budget(cpu_accounts(), cpu_accounts().live_bytes() + 100);
  CHECK_NOTHROW(at::empty({100}, at::kByte));
  CHECK_THROWS_AS(at::empty({101}, at::kByte), c10::OutOfMemoryError);
  CHECK(generator_state(generator) == state);  // 5 kB, in destructors
  CHECK_THROWS_AS(at::empty({101}, at::kByte), c10::OutOfMemoryError);
}
