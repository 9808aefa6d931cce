// The one place that says on which device the tests tagged [device] train: DTK_TEST_DEVICE, "cpu" where it is
// not set. A program with such tests takes its main() from device_main.cpp; ctest runs it a second time on
// CUDA, with label gpu.
#pragma once
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <dtk/policies/memory_ledger.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace dtk::test {

inline std::string test_device_name() {
  const char* name = std::getenv("DTK_TEST_DEVICE");
  return name == nullptr || std::string_view(name).empty() ? "cpu" : name;
}

/// After device_main.cpp opened it.
inline c10::Device test_device() {
  const std::string name = test_device_name();
  return name == "cuda" ? c10::Device(c10::kCUDA, 0) : c10::Device(name);
}

inline bool on_cpu() {
  return test_device().is_cpu();
}

/// Bytes of the test device's tensors as they were asked for: on the CPU by the ledger, so a
/// CountingAllocatorGuard must be alive; elsewhere by the device's caching allocator, before it rounds them
/// up to 512.
struct DeviceMemory {
  static int64_t live() { return on_cpu() ? policies::cpu_accounts().live_bytes() : statistics().current; }
  /// The most that was alive since restart().
  static int64_t peak() {
    return on_cpu() ? policies::highest(policies::cpu_accounts().phases()).peak.bytes : statistics().peak;
  }
  /// Forgets the ledger's phases.
  static void restart() {
    if (on_cpu()) {
      policies::cpu_accounts().reset_phases("step");
    } else {
      c10::getDeviceAllocator(test_device().type())->resetPeakStats(test_device().index());
    }
  }

 private:
  static c10::CachingAllocator::Stat statistics() {
    const c10::Device device = test_device();
    return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).requested_bytes[0];
  }
};

}  // namespace dtk::test
