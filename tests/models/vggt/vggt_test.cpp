// VGGT against the original: sizes, patch tokens, what the blocks give, cameras and depths.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/vggt.h>

#include <algorithm>
#include <functional>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/fixture.h"

using namespace dtk::models;

namespace {

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

VggtOptions tiny_options() {
  VggtOptions options;
  options.image = 56;
  options.patch = 14;
  options.hidden = 64;
  options.heads = 4;
  options.encoder = 3;
  options.depth = 6;
  options.registers = 4;
  options.trunk = 2;
  options.features = 32;
  options.widths = {16, 24, 32, 32};
  options.taps = {1, 2, 4, 5};
  return options;
}

const dtk::test::Fixture& fixture() {
  static const dtk::test::Fixture one = dtk::test::read_fixture("vggt_tiny");
  return one;
}

Vggt tiny() {
  Vggt model(tiny_options(), at::kCPU, generator(1));
  dtk::test::load_parameters(model.parameters(), fixture(), "w.");
  return model;
}

int64_t count(const Vggt& model, const std::string& prefix) {
  int64_t all = 0;
  for (const auto& [name, parameter] : model.parameters()) {
    if (name.starts_with(prefix)) all += parameter.numel();
  }
  return all;
}

double worst(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("a VGGT of the published size has the published number of parameters") {
  VggtOptions options;
  options.preset = VggtPreset::of_1b;
  options.points = true;
  const Vggt model(options, at::kMeta);
  CHECK(count(model, "aggregator.") == 909'112'320);
  CHECK(count(model, "aggregator.patch_embed.") == 304'372'736);
  CHECK(count(model, "camera_head.") == 216'174'610);
  CHECK(count(model, "depth_head.") == 32'654'562);
  CHECK(count(model, "point_head.") == 32'654'628);
  options.points = false;
  CHECK(count(Vggt(options, at::kMeta), "") == 1'157'941'492);
}

TEST_CASE("patch tokens, blocks, cameras and depths of a VGGT are those of the original") {
  Vggt model = tiny();
  model.seam.fuses = [fuses = GENERATE(false, true)](std::string_view) { return fuses; };
  const at::NoGradGuard no_grad;
  const at::Tensor pictures = fixture().at("images"), frames = pictures.flatten(0, 1);
  const VggtSize size = model.size_of(pictures.size(0), pictures.size(1), pictures.size(3), pictures.size(4));
  const auto read = [&](int64_t first, int64_t count) { return frames.narrow(0, first, count); };
  const at::Tensor tokens = model.encode(size, read);
  CHECK(worst(tokens.slice(1, 5), fixture().at("patch_tokens")) <= 1e-5);
  model.seam.taps = Taps::all;
  VggtTaps taps = model.aggregate(tokens, size);
  REQUIRE(taps.entries.size() == 6);
  for (const int64_t pair : *model.options().taps) {
    const at::Tensor& entry = taps.entries[static_cast<size_t>(pair)];
    CHECK(worst(entry.unflatten(0, {size.scenes, size.frames}),
                fixture().at("agg." + std::to_string(pair))) <= 3e-5);
  }
  const std::vector<at::Tensor> rounds = model.poses(taps.camera);
  REQUIRE(rounds.size() == 4);
  for (size_t i = 0; i < rounds.size(); ++i)
    CHECK(worst(rounds[i], fixture().at("pose_enc_iter." + std::to_string(i))) <= 2e-5);
  for (const Taps how : {Taps::projected, Taps::tapped, Taps::all}) {
    model.seam.taps = how;
    const VggtOutputs outputs = model.forward(pictures);
    CHECK(worst(outputs.poses, fixture().at("out.pose_enc")) <= 2e-5);
    CHECK(worst(outputs.depths, fixture().at("out.depth").squeeze(-1)) <= 1e-5);
    CHECK(worst(outputs.depth_confidence, fixture().at("out.depth_conf")) <= 1e-5);
    CHECK_FALSE(outputs.points.defined());
  }
}

TEST_CASE("points of a VGGT are those of a head in double precision, the original's quirks included") {
  VggtOptions options = tiny_options();
  options.camera = options.depths = false;
  options.points = true;
  Vggt model(options, at::kCPU, generator(1));
  const dtk::test::Fixture points = dtk::test::read_fixture("vggt_points");
  for (const auto& [name, parameter] : model.parameters())
    dtk::test::load_parameters({{name, parameter}}, name.starts_with("point_head.") ? points : fixture(),
                               "w.");
  const at::NoGradGuard no_grad;
  const VggtOutputs outputs = model.forward(fixture().at("images"));
  const at::Tensor wanted = points.at("out.points");
  CHECK(worst(outputs.points, wanted) <= 1e-5 * std::max(1.0, wanted.abs().max().item<double>()));
  const at::Tensor confidence = points.at("out.points_conf");
  CHECK(worst(outputs.points_confidence, confidence) <= 1e-5 * confidence.abs().max().item<double>());
}

TEST_CASE("the modules of a VGGT run in the order of its paths, and only those of its heads") {
  VggtOptions options = tiny_options();
  options.points = true;
  Vggt model(options, at::kCPU, generator(1));
  std::vector<std::string> seen;
  model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    seen.emplace_back(path);
    return fn(std::move(inputs));
  };
  const at::NoGradGuard no_grad;
  const VggtOutputs outputs = model.forward(at::rand({1, 2, 3, 28, 42}, generator(2)));
  CHECK(seen == model.paths());
  CHECK(outputs.points.sizes() == at::IntArrayRef({1, 2, 28, 42, 3}));
  CHECK(outputs.points_confidence.sizes() == at::IntArrayRef({1, 2, 28, 42}));
  options.points = options.depths = false;
  const Vggt cameras(options, at::kCPU, generator(1));
  CHECK(count(cameras, "depth_head.") == 0);
  CHECK(cameras.paths().back() == "camera_head");
  const VggtOutputs poses = cameras.forward(at::rand({1, 2, 3, 28, 42}, generator(2)));
  CHECK(poses.poses.sizes() == at::IntArrayRef({1, 2, 9}));
  CHECK_FALSE(poses.depths.defined());
}

TEST_CASE("options of no VGGT are refused with the key and what to set, and pictures of no whole patches") {
  const auto refused = [](const std::function<void(VggtOptions&)>& change) {
    VggtOptions options = tiny_options();
    change(options);
    const auto found = problems(options);
    REQUIRE_FALSE(found.empty());
    return found.front().message;
  };
  CHECK(refused([](VggtOptions& one) { one.depth.reset(); }) ==
        "vggt.depth is not set; set it, or vggt.preset");
  CHECK(refused([](VggtOptions& one) { one.hidden = 72; }) ==
        "vggt.hidden = 72 must be divisible by four times vggt.heads (16)");
  CHECK(refused([](VggtOptions& one) {
          one.taps = {0, 1, 2, 3};
        }) ==
        "vggt.taps must be four pairs, ascending, of which the last is the last of vggt.depth = 6, number 5");
  CHECK(refused([](VggtOptions& one) {
          one.widths = {16, 24, 30, 32};
        }) == "vggt.widths must be four numbers above 0 that 4 divides");
  CHECK(refused([](VggtOptions& one) { one.features = 36; }) ==
        "vggt.features = 36 must be divisible by eight (8)");
  CHECK(refused([](VggtOptions& one) { one.camera = one.depths = false; }) ==
        "vggt.camera, vggt.depths and vggt.points are all false; set one of them");
  const Vggt model = tiny();
  CHECK(dtk::test::error_text<std::invalid_argument>([&] {
          model.forward(at::zeros({1, 2, 3, 28, 40}));
        }) ==
        "Vggt: 1 scenes of 2 frames of 28 x 40; allowed: sides divisible by 14, and one scene and frame at "
        "the least");
  CHECK(dtk::test::error_text<std::invalid_argument>([&] {
          model.forward(at::zeros({2, 3, 28, 42}));
        }) == "Vggt: pictures of shape [2, 3, 28, 42]; allowed: (B, S, 3, H, W)");
}
