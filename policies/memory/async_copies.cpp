#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/policies/internal/async_copies.h>
#include <dtk/policies/simulation.h>

namespace dtk::policies {
namespace {

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

// The side stream works in order, so an event recorded on it stands for all copies begun before.
class CopiesOnStream final : public AsyncCopies {
 public:
  explicit CopiesOnStream(c10::Device device)
      : impl_(device.type()), device_(device), side_(impl_.getStreamFromGlobalPool(device)) {}

  ~CopiesOnStream() override {
    try {
      impl_.synchronizeStream(side_);
    } catch (const c10::Error&) {
      // A device that failed copies no more; the training thread meets the error itself.
    }
  }

  std::unique_ptr<AsyncCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
    c10::Event given(device_.type());
    given.record(impl_.getStream(device_));
    given.block(side_);
    const HostCopyScope copy;
    const at::NoGradGuard no_grad;
    const c10::StreamGuard stream(side_);
    to.copy_(from, /*non_blocking=*/true);
    auto begun = std::make_unique<Begun>(device_);
    begun->end.record(side_);
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

  const c10::impl::VirtualGuardImpl impl_;
  const c10::Device device_;
  const c10::Stream side_;
};

}  // namespace

std::unique_ptr<AsyncCopies> make_async_copies(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CopiesAtOnce>();
  return std::make_unique<CopiesOnStream>(device);
}

}  // namespace dtk::policies
