#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/policies/internal/copy_engine.h>
#include <dtk/policies/simulation.h>

namespace dtk::policies {
namespace {

// The side stream works in order, so its wait for the mark precedes all copies begun later, and an event
// recorded on it stands for all copies begun before. Each event belongs to one of the two threads.
class DeviceStagingCopies final : public StagingCopies {
 public:
  explicit DeviceStagingCopies(c10::Device device)
      : impl_(device.type()),
        device_(device),
        side_(impl_.getStreamFromGlobalPool(device)),
        marked_(device.type()),
        held_(device.type()) {}

  ~DeviceStagingCopies() override {
    try {
      impl_.synchronizeStream(side_);
    } catch (const c10::Error&) {
      // A device that failed copies no more; the training thread meets the error itself.
    }
  }

  void mark() override {
    marked_.record(impl_.getStream(device_));
    marked_.block(side_);
  }

  void begin(size_t slot, const void* from, void* to, size_t bytes) override {
    const HostCopyScope copy;
    const at::NoGradGuard no_grad;  // grad mode is each thread's own, and on in a new one
    const c10::StreamGuard stream(side_);
    const auto count = static_cast<int64_t>(bytes);
    const auto on_device = at::TensorOptions(at::kByte).device(device_);
    const at::Tensor source = at::for_blob(const_cast<void*>(from), {count})
                                  .options(on_device)
                                  .target_device(device_)
                                  .make_tensor();
    at::from_blob(to, {count}, at::kByte).copy_(source, /*non_blocking=*/true);
    while (arrived_.size() <= slot) arrived_.emplace_back(device_.type());
    arrived_[slot].record(side_);
  }

  void wait(size_t slot) override { arrived_.at(slot).synchronize(); }

  void hold_back() override {
    held_.record(side_);
    held_.block(impl_.getStream(device_));
  }

 private:
  const c10::impl::VirtualGuardImpl impl_;
  const c10::Device device_;
  const c10::Stream side_;
  c10::Event marked_, held_;         // training thread
  std::vector<c10::Event> arrived_;  // ring's thread; by slot
};

}  // namespace

std::unique_ptr<StagingCopies> make_device_staging_copies(c10::Device device) {
  return std::make_unique<DeviceStagingCopies>(device);
}

}  // namespace dtk::policies
