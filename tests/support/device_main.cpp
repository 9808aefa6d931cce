// main() of the programs whose tests run on the device of DTK_TEST_DEVICE: opens it, or skips all of them
// where there is none.
#include <ATen/Context.h>
#include <dtk/toolkit/device.h>
#include <dtk/toolkit/errors.h>

#include <cstdio>
#include <exception>

#include "test_device.h"
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

namespace {

constexpr int kSkipped = 77;

// Without a driver, "auto" is the CPU; a driver whose device cannot be used is a failure, not a reason to
// skip.
void open_test_device() {
  const std::string name = dtk::test::test_device_name();
  if (name != "cpu" && dtk::open_device("auto").is_cpu()) {
    try {
      dtk::open_device(name);
    } catch (const dtk::ConfigError& error) {
      std::printf("SKIPPED: %s\n", error.what());
      std::exit(kSkipped);
    }
  }
  dtk::open_device(name);
  // Kernels that sum in the order of arrival would make two equal passes differ. Those that know no other way
  // only warn: a test that meets one shows it.
  if (name != "cpu") at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    open_test_device();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return Catch::Session().run(argc, argv);
}
