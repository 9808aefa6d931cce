// The copies of staging_ring.h on a training device, through LibTorch's device-generic calls.
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/internal/staging_ring.h>

#include <memory>

namespace dtk::policies {

/// An engine that copies on a stream of its own beside the device's current one. Into pinned slots copies run
/// in the background; into pageable ones begin() may wait for the copy, still on the ring's thread only.
/// Throws c10::Error if the device has no streams (the CPU).
std::unique_ptr<StagingCopies> make_device_staging_copies(c10::Device device);

}  // namespace dtk::policies
