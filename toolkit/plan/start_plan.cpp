#include "toolkit/plan/start_plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "toolkit/config/rules.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "toolkit/device/device.h"
#include "toolkit/io/json.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

// A start waits no longer for scratch; the plan names what was not measured then. bf16 without instructions
// for it, with a large batch, would take minutes.
constexpr double kMaxMeasuring = 15;  // seconds

StartPlanRequest read_request(const std::string& text) {
  const Json json = parse_json(text);
  const auto locations = json.at("locations").get<std::map<std::string, std::string>>();
  StartPlanRequest request{reparse_config(json.at("config"), "the run's configuration", locations),
                           json.at("device"), json.at("measured")};
  json.at("ranks").get_to(request.loaded.ranks);
  return request;
}

Plan planned(StartPlanRequest request) {
  LoadedConfig& loaded = request.loaded;
  family_of(loaded.config).measure_data(loaded.config);
  const c10::Device device(request.device);
  planner::SimulationOptions options;
  std::optional<Calibration> scratch;
  if (request.measured) {
    SteadyClock clock;
    const double begin = clock.seconds();
    scratch =
        calibrate_cpu(loaded, available_bytes(), [&] { return clock.seconds() - begin < kMaxMeasuring; });
  }
  if (scratch && !scratch->scratch.empty()) options = with_calibration(options, *scratch);
  std::optional<CheckpointPlacement> placement;
  if (placement_is_open(loaded.config)) placement = place_checkpoints(loaded, device, options);
  Plan plan = plan_highest_rank(loaded, device, options);
  plan.placement = std::move(placement);
  return plan;
}

}  // namespace

std::string start_plan_request_json(const StartPlanRequest& request) {
  return json_line(Json({{"config", print_config(request.loaded)},
                         {"locations", request.loaded.locations},
                         {"ranks", request.loaded.ranks},
                         {"device", request.device},
                         {"measured", request.measured}}));
}

std::string start_plan_json(const std::string& request) try {
  return json_text(plan_json(planned(read_request(request))));
} catch (const MachineTooSmall& error) {
  return json_line(
      Json({{"problem", std::string("dit-plan: ") + error.what()}, {"machine_too_small", true}}));
} catch (const ConfigError& error) {
  return json_line(Json({{"refusal", first_line(error.what())}}));
}

}  // namespace dtk
