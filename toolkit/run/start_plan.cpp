#include "toolkit/run/start_plan.h"

namespace dtk {

StartPlan start_plan(const RunWorld& world, LoadedConfig loaded, c10::Device device) {
  if (!world.plan) return {std::nullopt, "nobody plans this run"};
  loaded.config.train.allow_thread_change = false;  // of no use in a new run
  loaded.config.data.allow_change = false;
  return world.plan(loaded, device);
}

}  // namespace dtk
