// The scales of the driving model's inputs, from the original's normalization.json and to one.
#include "toolkit/families/diffusion_planner/normalization.h"

#include <ATen/core/Tensor.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/diffusion_planner/preset.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Json = nlohmann::json;
using Scales = std::map<std::string, diffusion_planner::FeatureScale>;

constexpr const char* wanted_form =
    "; wanted: a JSON object such as {\"lanes\": {\"mean\": [10, 0, ...], \"std\": [20, 20, ...]}, ...}";
constexpr const char* finite = "; allowed: a number that is finite in float32";

Json entry(const diffusion_planner::FeatureScale& scale) {
  return {{"mean", scale.mean}, {"std", scale.std}};
}

/// `count` numbers: `first`, then `others`.
Json numbers(size_t count, int first, int others) {
  Json values = Json::array();
  for (size_t i = 0; i < count; ++i) values.push_back(i == 0 ? first : others);
  return values;
}

/// What the original has at preset H, written down from its description: not from the library's numbers.
Json published() {
  const Json pose = {{"mean", {10, 0, 0, 0}}, {"std", {20, 20, 1, 1}}};
  Json lane_std = numbers(33, 20, 1);
  for (size_t i = 1; i < 8; ++i) lane_std[i] = 20;
  const Json lanes = {{"mean", numbers(33, 10, 0)}, {"std", lane_std}};
  const Json limit = {{"mean", {0}}, {"std", {20}}};
  return {
      {"ego", pose},
      {"neighbor", pose},
      {"ego_agent_past", pose},
      {"goal_pose", pose},
      {"ego_current_state", {{"mean", numbers(10, 10, 0)}, {"std", {20, 20, 1, 1, 20, 20, 20, 20, 1, 1}}}},
      {"neighbor_agents_past",
       {{"mean", numbers(11, 10, 0)}, {"std", {20, 20, 1, 1, 20, 20, 20, 20, 1, 1, 1}}}},
      {"static_objects", {{"mean", numbers(10, 10, 0)}, {"std", {20, 20, 1, 1, 20, 20, 1, 1, 1, 1}}}},
      {"lanes", lanes},
      {"route_lanes", lanes},
      {"lanes_speed_limit", limit},
      {"route_lanes_speed_limit", limit},
      {"polygons", {{"mean", {10, 0, 0}}, {"std", {20, 20, 1}}}},
      {"line_strings", {{"mean", {10, 0, 0, 0}}, {"std", {20, 20, 1, 1}}}},
  };
}

Scales read_text(const std::string& text, const char* preset = "H") {
  test::MemoryFileSystem files;
  files.create("/n.json")->write(text.data(), text.size());
  const models::DiffusionPlannerOptions model = test::diffusion_planner_preset(preset);
  return diffusion_planner::read_normalization(files, "/n.json", diffusion_planner::layout_of(model),
                                               diffusion_planner::sizes_of(model));
}

std::string refusal_of_text(const std::string& text) {
  const std::string seen = test::error_text<DataError>([&] { read_text(text); });
  const std::string place = "/n.json: ";
  return seen.starts_with(place) ? seen.substr(place.size()) : seen;
}

/// Of the published file with another value at `place`, such as "/lanes/std/3".
std::string refusal(const std::string& place, const Json& value) {
  Json json = published();
  json[Json::json_pointer(place)] = value;
  return refusal_of_text(json.dump());
}

bool same(const Scales& a, const Scales& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.mean == other.second.mean &&
           one.second.std == other.second.std;
  });
}

}  // namespace

TEST_CASE("diffusion_planner normalization: the original's file has the scales that the library knows") {
  const Scales read = read_text(published().dump(2));
  CHECK(same(read, diffusion_planner::published_scales(33)));
  CHECK(read.size() == 11);
  CHECK_NOTHROW(diffusion_planner::Normalizer(read, at::kCPU));
}

TEST_CASE("diffusion_planner normalization: upstream's frames need fewer scales, and more are left out") {
  Json json = published();
  for (const char* key : {"lanes", "route_lanes"})
    json[key] = entry(diffusion_planner::published_scales(12).at(key));
  const Scales whole = read_text(json.dump(), "UP");
  CHECK(whole.size() == 7);
  for (const char* key : {"ego_agent_past", "goal_pose", "polygons", "line_strings"}) json.erase(key);
  CHECK(same(read_text(json.dump(), "UP"), whole));
  json.erase("static_objects");
  CHECK(test::error_text<DataError>([&] { read_text(json.dump(), "UP"); }) ==
        "/n.json: no scale of \"static_objects\"; add it, or take the file that was made with the weights");
}

TEST_CASE(
    "diffusion_planner normalization: other scales are taken, where nothing counts on the published ones") {
  Json json = published();
  json["lanes"]["std"][2] = 0.1;
  json["goal_pose"]["mean"][0] = -5;
  const Scales read = read_text(json.dump());
  CHECK(read.at("lanes").std[2] == 0.1F);
  CHECK(read.at("goal_pose").mean[0] == -5);
  for (const std::string key :
       {"ego", "neighbor", "ego_current_state", "neighbor_agents_past", "line_strings"}) {
    const std::string why = ", the published one, in whose unit losses and sampler compute";
    CHECK(refusal("/" + key + "/mean/0", 11) == "\"" + key + "\": mean[0] is 11; allowed: 10" + why);
    CHECK(refusal("/" + key + "/std/1", 20.5) == "\"" + key + "\": std[1] is 20.5; allowed: 20" + why);
  }
}

TEST_CASE("diffusion_planner normalization: lists of another length, and entries that are no scale") {
  const std::string what_to_do =
      ", one for each feature; take the file of this model, or choose the preset that it is for";
  CHECK(refusal("/lanes", entry(diffusion_planner::published_scales(12).at("lanes"))) ==
        "\"lanes\": mean has 12 numbers; allowed: 33 numbers" + what_to_do);
  CHECK(refusal("/polygons/std", {20, 20, 1, 1}) ==
        "\"polygons\": std has 4 numbers; allowed: 3 numbers" + what_to_do);
  CHECK(refusal("/lanes_speed_limit/mean", Json::array()) ==
        "\"lanes_speed_limit\": mean has 0 numbers; allowed: 1 number" + what_to_do);
  CHECK(refusal("/goal_pose/mean", 10) ==
        "\"goal_pose\": mean is one JSON number; allowed: a list of 4 numbers");
  CHECK(refusal("/goal_pose", 10) == std::string("\"goal_pose\": one JSON number") + wanted_form);
  CHECK(refusal("/goal_pose", {{"mean", {10, 0, 0, 0}}}) ==
        "\"goal_pose\": std is missing; allowed: 4 numbers; add it");
  CHECK(refusal("/goal_pose/var", 1) ==
        "\"goal_pose\": the key \"var\" is unknown; allowed: mean and std; remove it");
}

TEST_CASE(
    "diffusion_planner normalization: numbers that are none, and deviations that nothing can be divided by") {
  const std::string at = "\"lanes\": std[3] is ";
  CHECK(refusal("/lanes/std/3", "20") == at + "\"20\"" + finite);
  CHECK(refusal("/lanes/std/3", nullptr) == at + "one JSON null" + finite);
  CHECK(refusal("/lanes/std/3", Json::array({20})) == at + "one JSON array" + finite);
  CHECK(refusal("/lanes/std/3", 1e39) == at + "1e+39" + finite);
  CHECK(refusal("/lanes/mean/3", true) == "\"lanes\": mean[3] is one JSON boolean" + std::string(finite));
  CHECK(refusal("/lanes/std/3", 0) == at + "0; allowed: a number above 0");
  CHECK(refusal("/lanes/std/3", -20) == at + "-20; allowed: a number above 0");
  CHECK(refusal("/lanes/std/3", 1e-60) == at + "1e-60; allowed: a number above 0");  // 0 in float32
  CHECK(refusal("/lanes/mean/3", -1e-60) == "(nothing was thrown)");
}

TEST_CASE("diffusion_planner normalization: keys that are missing or unknown") {
  Json json = published();
  json.erase("lanes");
  CHECK(refusal_of_text(json.dump()) ==
        "no scale of \"lanes\"; add it, or take the file that was made with the weights");
  json.erase("ego");
  json.erase("polygons");
  CHECK(refusal_of_text(json.dump()) ==
        "no scale of \"lanes\", \"polygons\" and \"ego\"; add it, or take the file that was made with the "
        "weights");
  CHECK(refusal("/lane", 1) ==
        "the key \"lane\" is unknown; allowed: ego, ego_agent_past, ego_current_state, goal_pose, lanes, "
        "lanes_speed_limit, line_strings, neighbor, neighbor_agents_past, polygons, route_lanes, "
        "route_lanes_speed_limit and static_objects; remove it, or correct its name");
}

TEST_CASE("diffusion_planner normalization: what is no such file") {
  test::MemoryFileSystem files;
  files.create_directories("/folder");
  for (const std::string path : {"/gone.json", "/folder"}) {
    CHECK(test::error_text<DataError>([&] {
            diffusion_planner::read_normalization(files, path, diffusion_planner::FrameLayout::version_2, {});
          }) == path + ": no such file; name the normalization.json that was made with the weights");
  }
  CHECK(refusal_of_text("[1]") == std::string("one JSON array") + wanted_form);
  CHECK(refusal_of_text("{\"ego\": ") == std::string("/n.json is not JSON (at byte 9)") + wanted_form);
  CHECK(refusal_of_text("") == std::string("/n.json is not JSON (at byte 1)") + wanted_form);
  CHECK(refusal_of_text("{\"ego\": 1, \"ego\": 1}") ==
        std::string("/n.json has the key \"ego\" twice") + wanted_form);
  CHECK(refusal_of_text("{\"ego\": 1e400}") ==
        std::string("/n.json holds a number that is too large") + wanted_form);
  CHECK(refusal_of_text(std::string(9, '[') + std::string(9, ']')) ==
        std::string("/n.json nests deeper than 8 levels") + wanted_form);
}

TEST_CASE("diffusion_planner normalization: what is written reads back as it was") {
  const std::string text = diffusion_planner::normalization_text(diffusion_planner::published_scales(33));
  CHECK(Json::parse(text) == published());
  CHECK(same(read_text(text), diffusion_planner::published_scales(33)));
  CHECK(text.starts_with(
      "{\n  \"ego\": {\"mean\": [10, 0, 0, 0], \"std\": [20, 20, 1, 1]},\n  \"neighbor\": "));
  Scales odd = diffusion_planner::published_scales(33);
  odd.at("lanes").mean = std::vector<float>(33, 0.1F);
  odd.at("lanes").mean[1] = -1e-30F;
  odd.at("lanes").mean[2] = 16777217.0F;
  odd.at("lanes").std[5] = std::numeric_limits<float>::max();
  odd.at("lanes").std[6] = std::numeric_limits<float>::denorm_min();
  CHECK(same(read_text(diffusion_planner::normalization_text(odd)), odd));
}

}  // namespace dtk
