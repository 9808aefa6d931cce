#include "toolkit/run/run_ranks.h"

#include <algorithm>

namespace dtk {

std::vector<std::vector<double>> RunRanks::all_say(const std::vector<double>& own, const char* when) const {
  if (world_.ranks == nullptr) return {own};
  return world_.ranks->all_say(own, when);
}

bool RunRanks::any(bool this_one, const char* when) const {
  const auto said = all_say({this_one ? 1.0 : 0.0}, when);
  return std::any_of(said.begin(), said.end(), [](const auto& one) { return one[0] != 0; });
}

bool RunRanks::leaders(bool this_one, const char* when) const {
  return all_say({this_one ? 1.0 : 0.0}, when).front()[0] != 0;
}

bool RunRanks::may_go_on(const char* when) const {
  return !(trainer_.shards().divides_weights() ? any(stop_requested(), when) : stop_requested());
}

}  // namespace dtk
