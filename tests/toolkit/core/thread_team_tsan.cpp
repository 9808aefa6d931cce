// The team that reads samples, under the thread sanitizer: each number once, errors as of a plain loop.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "toolkit/core/thread_team.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "thread_team_tsan: %s\n", what);
  std::exit(1);
}

void each_number_once(int64_t threads) {
  dtk::ThreadTeam team(threads);
  for (const int64_t count : {0, 1, 2, 3, 17, 1000, 5, 0, 64}) {
    std::vector<int64_t> calls(static_cast<size_t>(count));  // no lock: each belongs to one call
    team.run(count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    require(calls == std::vector<int64_t>(static_cast<size_t>(count), 1), "not each number once");
  }
}

void the_lowest_error_comes_out(int64_t threads) {
  dtk::ThreadTeam team(threads);
  for (int round = 0; round < 200; ++round) {
    std::string seen;
    try {
      team.run(100, [](int64_t i) {
        if (i % 30 == 20) throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& error) {
      seen = error.what();
    }
    require(seen == "20", "not the first error");
    int64_t sum = 0;
    std::vector<int64_t> parts(10);
    team.run(10, [&](int64_t i) { parts[static_cast<size_t>(i)] = i; });
    sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    require(sum == 45, "no loop after an error");
  }
}

}  // namespace

int main() {
  for (const int64_t threads : {1, 2, 4}) {
    each_number_once(threads);
    the_lowest_error_comes_out(threads);
  }
  for (int round = 0; round < 100; ++round) dtk::ThreadTeam unused(3);
  try {
    dtk::ThreadTeam none(0);
    require(false, "a team of nobody");
  } catch (const std::invalid_argument&) {
  }
}
