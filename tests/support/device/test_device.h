// The one place that says on which device the tests tagged [device] train: DTK_TEST_DEVICE, "cpu" where it is
// not set. A program with such tests takes its main() from device_main.cpp; ctest runs it a second time on
// CUDA, with label gpu, and a third time on dtk::planner's simulated device, with label simulated-cuda.
//
// The simulated device proves what does not depend on values: bytes, lifetimes, order, threads, which path
// the code takes. It has no values, so they are looked at within CHECK_VALUES and after NEEDS_VALUES only.
#pragma once
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <dtk/policies/memory_ledger.h>

#include <cstdint>
#include <cstdlib>
#include <map>
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
  return name == "cuda" || name == "simulated" ? c10::Device(c10::kCUDA, 0) : c10::Device(name);
}

/// Whether nothing is computed.
inline bool simulated() {
  return test_device_name() == "simulated";
}

inline bool on_cpu() {
  return test_device().is_cpu();
}

/// What this process left out because there are no values.
struct LeftOut {
  std::map<std::string, int64_t> comparisons;  // expression -> how often
  std::map<std::string, std::string> tests;    // name -> why
  static LeftOut& instance() {
    static LeftOut all;
    return all;
  }
};

/// True if values can be looked at; else it is noted that `expression` was not.
inline bool computes_values(const char* expression) {
  if (simulated()) ++LeftOut::instance().comparisons[expression];
  return !simulated();
}

/// A CHECK of values.
#define CHECK_VALUES(...)                                             \
  do {                                                                \
    if (dtk::test::computes_values(#__VA_ARGS__)) CHECK(__VA_ARGS__); \
  } while (false)

/// Leaves a test that is about values and nothing else.
#define NEEDS_VALUES(why)                                                                           \
  do {                                                                                              \
    if (dtk::test::simulated()) {                                                                   \
      dtk::test::LeftOut::instance().tests[Catch::getResultCapture().getCurrentTestName()] = (why); \
      return;                                                                                       \
    }                                                                                               \
  } while (false)

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
