// A program with a backend of its own, registered before dtk is used: its tensors, the ledger, checkpointing
// and plans do not disturb each other. A program of its own, as a backend is the process's.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/internal/kept_results.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <cstdlib>

#include "support/catch.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::same_bits;

namespace {

constexpr auto kType = c10::kPrivateUse1;
const c10::Device kOwn(kType, 0);

// Its memory is the host's, not counted by anyone; its operators run on the CPU.
struct OwnAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = std::malloc(bytes);
    return {data, data, &std::free, kOwn};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

c10::Allocator& own_allocator() {
  static OwnAllocator allocator;
  return allocator;
}

const c10::Stream kStream(c10::Stream::DEFAULT, kOwn);

// All is done when an operator returns.
struct OwnStreams final : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device getDevice() const override { return kOwn; }
  c10::Device exchangeDevice(c10::Device) const override { return kOwn; }
  c10::Stream getStream(c10::Device) const noexcept override { return kStream; }
  c10::Stream getDefaultStream(c10::Device) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return kStream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

const c10::impl::DeviceGuardImplRegistrar streams(kType, new OwnStreams);

int operators_run = 0;

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++operators_run;
  at::native::cpu_fallback(op, stack);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &own_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &own_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

at::Tensor on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(self));
  return to;
}

at::Tensor copy_result(const at::Tensor& self, const at::Tensor& to) {
  TORCH_CHECK(self.sizes() == to.sizes(), "a result that is resized");
  return copy_from(self, to, false);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_result);
  m.impl("as_strided", &as_strided);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
}

class OwnGenerator final : public at::CPUGeneratorImpl {
 public:
  OwnGenerator() { device_ = kOwn; }
};

struct OwnHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator(c10::make_intrusive<OwnGenerator>());
    return generator;
  }
};

const bool registered = [] {
  c10::register_privateuse1_backend("own");
  at::RegisterPrivateUse1HooksInterface(new OwnHooks);
  return true;
}();

struct Net {
  explicit Net(c10::Device device) {
    at::manual_seed(1);
    for (at::Tensor* one : {&x, &w1, &w2}) *one = at::randn({8, 8}).to(device).requires_grad_();
  }
  at::Tensor x, w1, w2;

  ModuleFn segment() const {
    return [net = *this](Tensors&& in) {
      const at::Tensor h = named("wide", at::gelu(at::mm(in[0], net.w1)));
      return Tensors{at::mm(h, net.w2).sin() + in[0]};
    };
  }

  Tensors gradients() const { return {x.grad().cpu(), w1.grad().cpu(), w2.grad().cpu()}; }
};

Tensors plain(c10::Device device) {
  const Net net(device);
  torch::autograd::backward({net.segment()({net.x})[0].sum()}, {});
  return net.gradients();
}

Tensors checkpointed(c10::Device device, const std::vector<std::string>& keep) {
  const SavedTensorEngineGuard engine;
  const Net net(device);
  const auto kept = keep.empty() ? nullptr : std::make_shared<KeptResults>(keep);
  torch::autograd::backward({checkpoint("segment", net.segment(), {net.x}, kept)[0].sum()}, {});
  return net.gradients();
}

bool all_same(const Tensors& a, const Tensors& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = same_bits(a[i], b[i]);
  return same;
}

int64_t planned_peak(c10::Device device) {
  const auto plan = dtk::planner::simulate(device, [&](const auto&) {
    const at::Tensor one = at::empty({1000}, at::TensorOptions(device));
    const at::Tensor two = one.sin();
  });
  return highest(plan.device).peak.bytes;
}

}  // namespace

TEST_CASE("segments are planned, and run on the CPU and on the backend, beside it") {
  const Tensors expected = plain(at::kCPU);
  CHECK(operators_run == 0);
  CHECK(all_same(plain(kOwn), expected));
  CHECK(operators_run > 0);

  CHECK(planned_peak(c10::Device("cuda:0")) == 8000);
  CHECK(planned_peak(at::kCPU) == 8000);
  for (const c10::Device device : {c10::Device(at::kCPU), kOwn}) {
    INFO(device.str());
    CHECK(all_same(checkpointed(device, {}), expected));
    CHECK(all_same(checkpointed(device, {"wide"}), expected));
    CHECK(all_same(checkpointed(device, {"aten::mm"}), expected));
  }
  CHECK(all_same(plain(kOwn), expected));
}

TEST_CASE("the ledger counts the CPU's tensors and not the backend's") {
  const CountingAllocatorGuard counting;
  const int64_t before = cpu_accounts().live_bytes();
  const at::Tensor own = at::empty({1000}, at::TensorOptions(kOwn));
  CHECK(cpu_accounts().live_bytes() == before);
  const at::Tensor host = own.cpu();
  CHECK(cpu_accounts().live_bytes() - before == 4000);
  CHECK(own.device() == kOwn);
}
