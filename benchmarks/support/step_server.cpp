#include "support/step_server.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "toolkit/core/clock.h"

namespace dtk::bench {
namespace {

// Calls of each operator, counted while `run` runs. The observer is a plain function, so the counts are
// static.
std::map<std::string, int> count_operators(const std::function<void()>& run) {
  static std::mutex mutex;
  static std::map<std::string, int> counts;
  counts.clear();
  const auto observer = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    const std::lock_guard lock(mutex);
    ++counts[fn.name()];
    return nullptr;
  };
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback(observer).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return counts;
}

void print_operators(const std::function<void()>& step) {
  for (const auto& [name, count] : count_operators(step)) std::printf("%s %d\n", name.c_str(), count);
  std::printf("end 0\n");
}

}  // namespace

void serve(const std::function<void()>& step, c10::Device device, const Numbers& numbers) {
  std::printf("ready %d\n", at::get_num_threads());
  std::fflush(stdout);
  const c10::impl::VirtualGuardImpl guard(device.type());
  SteadyClock clock;
  for (std::string line; std::getline(std::cin, line);) {
    if (const auto number = numbers.find(line); number != numbers.end()) {
      std::printf("%s %.17g\n", line.c_str(), number->second());
    } else if (line == "operators") {
      print_operators(step);
    } else if (line == "step") {
      const double begin = clock.seconds();
      step();
      if (!device.is_cpu()) guard.synchronizeDevice(device.index());
      std::printf("ms %.4f\n", 1000 * (clock.seconds() - begin));
    } else {
      throw std::invalid_argument("unknown request: " + line);
    }
    std::fflush(stdout);
  }
}

}  // namespace dtk::bench
