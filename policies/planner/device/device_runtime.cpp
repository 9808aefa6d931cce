#include "device/device_runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/torch_versions.h>

#include <atomic>
#include <memory>
#include <utility>

#include "core/stream_order.h"
#include "device/device_memory.h"

namespace dtk::planner {
namespace {

constexpr c10::DeviceType kType = c10::kCUDA;
const c10::Device kDevice(kType, 0);

thread_local c10::StreamId stream_of_thread = 0;

using Event = StreamOrder::Clock;

const Event& recorded(const void* event, const char* what) {
  if (event == nullptr) throw PlanError(operator_here(what) + ": an event that was never recorded");
  return *static_cast<const Event*>(event);
}

// Work is done when it is given, so every event has happened; stream_order.h sees to it that it was waited
// for all the same.
class Guard final : public c10::impl::NoOpDeviceGuardImpl<kType> {
 public:
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const noexcept override { return stream(stream_of_thread); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  // Of a pool, like CUDA's: later ones come round again.
  c10::Stream getNewStream(c10::Device, int) const override {
    constexpr c10::StreamId kPool = 32;
    static std::atomic<c10::StreamId> next{0};
    return stream(1 + next++ % kPool);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    return stream(std::exchange(stream_of_thread, next.id()));
  }
  void* getStreamNativeHandle(c10::Stream) const override { return nullptr; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = StreamOrder::instance().record(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    StreamOrder::instance().wait(stream.id(), recorded(event, "a stream's wait"));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override {
    StreamOrder::instance().wait(StreamOrder::kHost, recorded(event, "the host's wait"));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    StreamOrder::instance().synchronize(stream.id());
  }
  void synchronizeDevice(c10::DeviceIndex) const override { StreamOrder::instance().synchronize_all(); }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 0; }

  // Of a device of compute capability 8.0 or higher.
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

 private:
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
};

// Draws nothing, but has a state to save and restore.
class Generator final : public at::CPUGeneratorImpl {
 public:
  Generator() { device_ = kDevice; }
};

class Hooks final : public at::CUDAHooksInterface {
 public:
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator(c10::make_intrusive<Generator>());
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::Generator(c10::make_intrusive<Generator>());
  }
  // LibTorch then gives batch normalisation to cuDNN where it does on a device.
  bool compiledWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return planned_torch().cudnn; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::instance(); }
  at::Allocator* getCUDADeviceAllocator() const override { return &SimulatedMemory::instance(); }
  bool isPinnedPtr(const void* address) const override { return PinnedMemory::instance().holds(address); }
};

}  // namespace

c10::StreamId current_stream() {
  return stream_of_thread;
}

void register_simulated_runtime() {
  c10::SetAllocator(kType, &SimulatedMemory::instance(), 1);
  static const c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) { return std::unique_ptr<at::CUDAHooksInterface>(new Hooks); });
}

}  // namespace dtk::planner
