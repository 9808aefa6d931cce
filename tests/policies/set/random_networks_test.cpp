// Segments of random networks: gradients to the bit of the plain run, bytes to the byte of the plan.
#include "support/policies/random_networks.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "support/catch.h"
#include "support/policies/network_trial.h"

using namespace dtk::bench;

namespace {

// YYYYMMDD, so that every day tries other networks and a failure can be repeated.
uint64_t seed_of_today() {
  const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day date(today);
  return static_cast<uint64_t>(static_cast<int>(date.year())) * 10000 +
         static_cast<unsigned>(date.month()) * 100 + static_cast<unsigned>(date.day());
}

std::string lines(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += one + "\n";
  return text;
}

}  // namespace

TEST_CASE("segments of random networks give the plain run's bits and the plan's bytes, and save") {
  constexpr uint64_t kNetworks = 100;
  const uint64_t seed = seed_of_today();
  WARN("seed " << seed);
  uint64_t that_save = 0;
  for (uint64_t index = 0; index < kNetworks; ++index) {
    const RandomNetwork network = random_network(seed, index);
    INFO("benchmarks/policies/checkpoint_networks --seed " << seed << " --network " << index);
    INFO(text_of(network));
    const NetworkTrial trial = try_network(network);
    CHECK(lines(trial.different_values) == "");
    CHECK(lines(trial.different_bytes) == "");
    CHECK(trial.values > 4);
    CHECK(trial.storages > 20);
    that_save += trial.saves() ? 1 : 0;
  }
  CHECK(that_save >= kNetworks * 7 / 10);
}

TEST_CASE("a network is a function of its seed and number") {
  CHECK(text_of(random_network(3, 4)) == text_of(random_network(3, 4)));
  CHECK(text_of(random_network(3, 4)) != text_of(random_network(3, 5)));
  CHECK(text_of(random_network(3, 4)) != text_of(random_network(4, 4)));
}
