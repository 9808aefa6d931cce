// A VGGT in training on scenes: losses, gradients under checkpointing, bytes, and what of scenes is refused.
#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/config_text.h"
#include "support/device/devices.h"
#include "support/same_bits.h"
#include "support/vggt/scenes.h"
#include "toolkit/families/vggt/geometry.h"
#include "toolkit/families/vggt/losses.h"
#include "toolkit/families/vggt/scenes.h"
#include "toolkit/families/vggt/trainable.h"
#include "toolkit/train/apply_policies.h"
#include "toolkit/train/model_family.h"

using namespace dtk;
using dtk::test::kCpu;

namespace {

at::Generator generator(uint64_t seed) {
  return policies::make_generator(kCpu, seed);
}

// The gradients of the loss of all scenes.
std::vector<at::Tensor> gradients(const LoadedConfig& loaded) {
  const RunConfig& config = loaded.config;
  const policies::SavedTensorEngineGuard engine;
  vggt::TrainableVggt model(config, kCpu, generator(1));
  policies::PolicySet set = put_policies_in(config.policies, model);
  const RunData data = vggt::open_scenes(loaded);
  Batch batch = read_batch(*data.all, 0, data.all->size(), "scenes");
  at::Tensor loss;
  {
    const auto scope = set.forward_scope();
    loss = model.loss(std::move(batch), generator(2), true);
  }
  loss.backward();
  std::vector<at::Tensor> all;
  for (const auto& [name, parameter] : reached_parameters(model)) {
    CAPTURE(name);
    REQUIRE(parameter.grad().defined());
    all.push_back(parameter.grad().clone());
  }
  return all;
}

}  // namespace

TEST_CASE("every trained tensor of a VGGT gets a gradient, with checkpointing the same bits") {
  const test::SceneFolder folder;
  const auto plain = gradients(folder.config({"policies.checkpoint.enabled=false"}));
  const auto recomputed = gradients(folder.config({"policies.checkpoint.enabled=true"}));
  REQUIRE(plain.size() == recomputed.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(plain[i].abs().sum().item<double>() > 0);
    CHECK(test::same_bits(plain[i], recomputed[i]));
  }
}

TEST_CASE("heads compute in fp32 under autocast, as the original's, in training and where autocast infers") {
  const test::SceneFolder folder;
  const auto taken = [&](const std::vector<std::string>& overrides) {
    const LoadedConfig loaded = folder.config(overrides);
    const policies::SavedTensorEngineGuard engine;
    vggt::TrainableVggt model(loaded.config, kCpu, generator(1));
    policies::PolicySet set = put_policies_in(loaded.config.policies, model);
    const RunData data = vggt::open_scenes(loaded);
    const auto scope = set.forward_scope();
    model.loss(read_batch(*data.all, 0, 2, "scenes"), generator(2), true);
    return set.reports().front().reason;
  };
  CHECK(
      taken({"policies.precision.enabled=true"}) ==
      "bf16 autocast, asked for; fp32 in camera_head depth_head depth_head.projects.1 depth_head.projects.2 "
      "depth_head.projects.4 depth_head.projects.5");
  CHECK(taken({"policies.precision.enabled=true", "policies.precision.fp32=[]"}) ==
        "bf16 autocast, asked for");
}

TEST_CASE("a camera's pose says what its rotation, translation and focal lengths are") {
  vggt::Camera camera;
  camera.rotation = {{{0, -1, 0}, {1, 0, 0}, {0, 0, 1}}};
  camera.translation = {1, 2, 3};
  camera.focal_x = 60;
  camera.focal_y = 50;
  const vggt::Pose pose = vggt::pose_of(camera, 100, 120);
  const double half = std::sqrt(0.5);
  const vggt::Pose wanted{1, 2, 3, 0, 0, half, half, 2 * std::atan2(50.0, 50.0), 2 * std::atan2(60.0, 60.0)};
  for (size_t i = 0; i < pose.size(); ++i) CHECK(pose.at(i) == Approx(wanted.at(i)).margin(1e-12));
  const vggt::Camera again = vggt::camera_of(pose, 100, 120);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j)
      CHECK(again.rotation.at(i).at(j) == Approx(camera.rotation.at(i).at(j)).margin(1e-12));
  }
  CHECK(again.focal_y == Approx(50));
  const vggt::Camera own = vggt::relative_to(camera, camera);
  CHECK(own.rotation[0][0] == Approx(1));
  CHECK(own.translation[2] == Approx(0).margin(1e-12));
  // Half turns have no w to divide by.
  for (const auto& turned : {vggt::Rotation{{{1, 0, 0}, {0, -1, 0}, {0, 0, -1}}},
                             vggt::Rotation{{{-1, 0, 0}, {0, 1, 0}, {0, 0, -1}}},
                             vggt::Rotation{{{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}}}}) {
    camera.rotation = turned;
    const vggt::Camera back = vggt::camera_of(vggt::pose_of(camera, 100, 120), 100, 120);
    for (size_t i = 0; i < 3; ++i) CHECK(back.rotation.at(i).at(i) == Approx(turned.at(i).at(i)));
  }
}

TEST_CASE("the losses of a VGGT are those of their formulas, by hand") {
  const at::Tensor wanted = at::zeros({1, 1, 9}), pose = at::ones({1, 1, 9});
  // 1 + 1 + 1/2, of the second round; 0.6 times that of a first one with 200 for its translation, up to 100.
  const at::Tensor far = at::cat({at::full({1, 1, 3}, 200.0), at::ones({1, 1, 6})}, 2);
  CHECK(vggt::camera_loss({far, pose}, wanted).item<double>() ==
        Approx((0.6 * (100 + 1 + 0.5) + (1 + 1 + 0.5)) / 2));
  vggt::LossOptions options;
  options.confidence = 0.2;
  options.gradient = 0;
  at::Tensor depth = at::full({1, 1, 2, 2}, 3.0), sure = at::full({1, 1, 2, 2}, 2.0),
             truth = at::ones({1, 1, 2, 2});
  truth[0][0][0][0] = 0;  // not known
  depth[0][0][0][0] = 1e6;
  CHECK(vggt::depth_loss(depth, sure, truth, options).item<double>() ==
        Approx(2 * 2 - 0.2 * std::log(2.0) + 2).epsilon(1e-6));
  options.gradient = 1;
  const at::Tensor ramp = at::arange(4.0).view({1, 1, 1, 4}).to(at::kFloat), ones = at::ones({1, 1, 1, 4});
  // Errors 0 to 3 less 1: neighbours differ by 1 at stride 1, by 2 at stride 2, and at stride 4 there are
  // none.
  const double without = (2 * (1 + 0 + 1 + 2) / 4.0);
  CHECK(vggt::depth_loss(ramp, ones, ones, options).item<double>() == Approx(without + (1 + 2) / 3.0));
}

TEST_CASE("a sample's world is its first frame's, scaled to a mean depth of 1") {
  const test::SceneFolder folder(1, 4);
  const RunData data = vggt::open_scenes(folder.config());
  const Batch batch = read_batch(*data.all, 0, 1, "scenes");
  const at::Tensor poses = batch.tensors[vggt::kPoses], depths = batch.tensors[vggt::kDepths];
  CHECK(poses[0][0].slice(0, 0, 6).abs().max().item<double>() < 1e-6);
  CHECK(poses[0][0][6].item<double>() == Approx(1));
  CHECK(depths[0][0].mean().item<double>() == Approx(1).epsilon(1e-4));
  CHECK(batch.tensors[vggt::kPictures].max().item<double>() <= 1);
  const Batch other = read_batch(*data.all, 0, 1, "scenes");
  CHECK(other.tensors[vggt::kPoses].equal(poses));
}

TEST_CASE("scenes that cannot be trained on are refused by name, with what was seen") {
  const test::SceneFolder folder(1, 3);
  const auto refused = [&] {
    return test::error_text<DataError>([&] { vggt::open_scenes(folder.config()); });
  };
  const std::string cameras = folder.read("0/cameras.json"), depths = folder.read("0/depth.npy");
  const auto with_cameras = [&](const std::string& text) {
    folder.write("0/cameras.json", text);
    const std::string error = refused();
    folder.write("0/cameras.json", cameras);
    return error;
  };
  CHECK(with_cameras("{}").ends_with("0/cameras.json: has no \"frames\""));
  CHECK(with_cameras("[1").find("is not JSON") != std::string::npos);
  CHECK(with_cameras("{\"frames\": " + std::string(40, '[')).find("0/cameras.json") != std::string::npos);
  CHECK(with_cameras("{\"frames\": [], \"frames\": []}").find("frames") != std::string::npos);
  CHECK(with_cameras("{\"frames\": []}").ends_with("has 0 cameras, and frames/ 3 pictures"));
  const auto frame = [](const char* rotation, const char* focal) {
    return std::string("{\"frames\": [{\"rotation\": ") + rotation +
           ", \"translation\": [0, 0, 0], \"focal\": " + focal + "}]}";
  };
  const char* const upright = "[[1,0,0],[0,1,0],[0,0,1]]";
  CHECK(with_cameras(frame("[[1,0,0],[0,2,0],[0,0,1]]", "[1,1]")).find("\"rotation\" is none") !=
        std::string::npos);
  CHECK(with_cameras(frame("[[1,0,0],[0,1,0],[0,0,-1]]", "[1,1]")).find("\"rotation\" is none") !=
        std::string::npos);
  CHECK(with_cameras(frame(upright, "[0,1]")).ends_with("\"focal\" is not above 0"));
  CHECK(with_cameras(frame(upright, "[1e999,1]")).find("0/cameras.json") != std::string::npos);
  CHECK(with_cameras(frame(upright, "[\"1\",1]")).ends_with("wanted: a list of 2 numbers"));
  CHECK(with_cameras(frame("3", "[1,1]")).ends_with("\"rotation\" has not three rows"));
  const std::string other = std::string(cameras).replace(cameras.find("1.png"), 5, "7.png");
  CHECK(
      with_cameras(other).ends_with("frame 1: \"file\" is \"7.png\", and picture 1 of frames/, by name, is "
                                    "\"1.png\"; cameras stand in the order of pictures"));
  at::Tensor some = at::ones({3, 56, 84});
  some[1][2][3] = std::numeric_limits<float>::quiet_NaN();
  folder.write_depths("0", some);
  CHECK(refused().find("value 4875 is nan; allowed: 0") != std::string::npos);
  folder.write_depths("0", at::zeros({3, 56, 84}));
  CHECK(refused().ends_with("no depth is above 0, so that nothing says how large the scene is"));
  folder.write_depths("0", at::ones({3, 56, 80}));
  CHECK(refused().find("holds (3, 56, 80) of Float; wanted: fp32 of (3, 56, 84)") != std::string::npos);
  folder.write("0/depth.npy", depths);
  CHECK(test::error_text<DataError>([&] {
          vggt::open_scenes(folder.config({"vggt.data.frames=4"}));
        }).ends_with("holds 3 pictures, and a sample has vggt.data.frames = 4"));
}

TEST_CASE("a configuration of a VGGT needs no end, a run of it does, and no run trains points") {
  CHECK_NOTHROW(test::tiny_vggt_config());
  CHECK(test::error_text<ConfigError>([] {
          test::tiny_vggt_config({"train.steps=3", "vggt.points=true"});
        }).find("no loss is known for the point head") != std::string::npos);
  CHECK(test::error_text<ConfigError>([] {
          test::tiny_vggt_config({"train.steps=3", "policies.inference.enabled=true"});
        }).find("has no effect on training, in which nothing is inferred") != std::string::npos);
  CHECK(test::error_text<ConfigError>([] {
          test::tiny_vggt_config({"vggt.data.width=85"});
        }).ends_with("vggt.data.width = 85 must be divisible by vggt.patch = 14"));
}
