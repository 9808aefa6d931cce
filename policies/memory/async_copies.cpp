#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/policies/internal/async_copies.h>
#include <dtk/policies/simulation.h>

namespace dtk::policies {
namespace {

// A stream beside a device's own, which works in order: its wait for an event precedes all copies begun
// later, and an event recorded on it stands for all copies begun before. At its end they are done.
class SideStream : NotCopied {
 public:
  explicit SideStream(c10::Device on) : impl(on.type()), device(on), side(impl.getStreamFromGlobalPool(on)) {}
  ~SideStream() {
    try {
      impl.synchronizeStream(side);
    } catch (const c10::Error&) {
      // A device that failed copies no more; the training thread meets the error itself.
    }
  }
  c10::Stream current() const { return impl.getStream(device); }

  const c10::impl::VirtualGuardImpl impl;
  const c10::Device device;
  const c10::Stream side;
};

class CopiesAtOnce final : public AsyncCopies {
 public:
  std::unique_ptr<AsyncCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
    class Done final : public AsyncCopy {
      void wait() override {}
    };
    const at::NoGradGuard no_grad;
    to.copy_(from);
    return std::make_unique<Done>();
  }
};

class CopiesOnStream final : public AsyncCopies {
 public:
  explicit CopiesOnStream(c10::Device device) : stream_(device) {}

  std::unique_ptr<AsyncCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
    c10::Event given(stream_.device.type());
    given.record(stream_.current());
    given.block(stream_.side);
    const HostCopyScope copy;
    const at::NoGradGuard no_grad;
    const c10::StreamGuard stream(stream_.side);
    to.copy_(from, /*non_blocking=*/true);
    auto begun = std::make_unique<Begun>(stream_.device);
    begun->end.record(stream_.side);
    return begun;
  }

 private:
  class Begun final : public AsyncCopy {
   public:
    explicit Begun(c10::Device device) : end(device.type()), device_(device) {}
    void wait() override { end.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)); }
    c10::Event end;

   private:
    const c10::Device device_;
  };

  const SideStream stream_;
};

// Each event belongs to one of the two threads.
class DeviceStagingCopies final : public StagingCopies {
 public:
  explicit DeviceStagingCopies(c10::Device device)
      : marked_(device.type()), held_(device.type()), stream_(device) {}

  void mark() override {
    marked_.record(stream_.current());
    marked_.block(stream_.side);
  }

  void begin(size_t slot, const void* from, void* to, size_t bytes) override {
    const HostCopyScope copy;
    const at::NoGradGuard no_grad;  // grad mode is each thread's own, and on in a new one
    const c10::StreamGuard stream(stream_.side);
    const auto count = static_cast<int64_t>(bytes);
    const at::Tensor source = at::for_blob(const_cast<void*>(from), {count})
                                  .options(at::TensorOptions(at::kByte).device(stream_.device))
                                  .target_device(stream_.device)
                                  .make_tensor();
    at::from_blob(to, {count}, at::kByte).copy_(source, /*non_blocking=*/true);
    while (arrived_.size() <= slot) arrived_.emplace_back(stream_.device.type());
    arrived_[slot].record(stream_.side);
  }

  void wait(size_t slot) override { arrived_.at(slot).synchronize(); }

  void hold_back() override {
    held_.record(stream_.side);
    held_.block(stream_.current());
  }

 private:
  c10::Event marked_, held_;         // training thread
  std::vector<c10::Event> arrived_;  // ring's thread; by slot
  const SideStream stream_;          // last: it ends before the events
};

}  // namespace

std::unique_ptr<AsyncCopies> make_async_copies(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CopiesAtOnce>();
  return std::make_unique<CopiesOnStream>(device);
}

std::unique_ptr<StagingCopies> make_device_staging_copies(c10::Device device) {
  return std::make_unique<DeviceStagingCopies>(device);
}

}  // namespace dtk::policies
