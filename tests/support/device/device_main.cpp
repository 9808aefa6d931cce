// main() of the programs whose tests run on the device of DTK_TEST_DEVICE: opens it, or skips all of them
// where there is none.
#include <ATen/Context.h>
#include <dtk/planner/simulated_device.h>

#include <cstdio>
#include <exception>
#include <optional>

#include "support/catch_session.h"
#include "support/device/test_device.h"
#include "toolkit/core/errors.h"
#include "toolkit/device/device.h"

namespace {

constexpr int kSkipped = 77;

// Without a driver, "auto" is the CPU; a driver whose device cannot be used is a failure, not a reason to
// skip.
void open_test_device() {
  if (dtk::test::simulated()) {
    dtk::planner::register_simulated_devices();
    return;
  }
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

// A run in which every test was left out has proved nothing.
int judge_simulated(int failures) {
  const auto& left_out = dtk::test::LeftOut::instance();
  for (const auto& [test, why] : left_out.tests) std::printf("SKIPPED: %s: %s\n", test.c_str(), why.c_str());
  for (const auto& [expression, times] : left_out.comparisons)
    std::printf("SKIPPED: %lld times %s\n", static_cast<long long>(times), expression.c_str());
  const int ran = dtk::test::tests_that_checked();
  std::printf("simulated device: %d tests ran, %zu skipped\n", ran, left_out.tests.size());
  return failures != 0 || ran > 0 ? failures : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    open_test_device();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  if (!dtk::test::simulated()) return dtk::test::run_catch(argc, argv);
  const dtk::planner::ShapesOnlyScope shapes;
  return judge_simulated(dtk::test::run_catch(argc, argv));
}
