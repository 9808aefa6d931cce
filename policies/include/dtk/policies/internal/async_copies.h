// Copies between a training device and host memory on a stream of their own, beside the device's work,
// through LibTorch's device-generic calls.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/policies/internal/staging_ring.h>

#include <memory>

namespace dtk::policies {

/// A copy that was begun.
class AsyncCopy {
 public:
  virtual ~AsyncCopy() = default;
  /// Work that the calling thread gives to its current stream from now on waits for the end of this copy and
  /// of all begun before it. The host itself does not wait.
  virtual void wait() = 0;
};

/// Thread-safe. Copies are made one after the other; the destructor ends those begun.
class AsyncCopies {
 public:
  virtual ~AsyncCopies() = default;
  /// Begins to copy `from` to `to`, dense tensors of one size and dtype, of which one may be in pinned host
  /// memory. The copy sees `from` as the work left it that the calling thread's current stream was given so
  /// far. Both must live until somebody waited for it.
  virtual std::unique_ptr<AsyncCopy> begin(const at::Tensor& from, const at::Tensor& to) = 0;
};

/// On a side stream of `device`; on the CPU, which has none, begin() copies at once.
std::unique_ptr<AsyncCopies> make_async_copies(c10::Device device);

/// For a StagingRing. Into pinned slots copies run in the background; into pageable ones begin() may wait for
/// the copy, still on the ring's thread only. Throws c10::Error if the device has no streams (the CPU).
std::unique_ptr<StagingCopies> make_device_staging_copies(c10::Device device);

}  // namespace dtk::policies
