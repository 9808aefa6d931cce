// From frames on disk to the model's inputs, against what the original makes of the same files.
#include "toolkit/families/diffusion_planner/inputs.h"

#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/diffusion_planner/golden.h"
#include "support/diffusion_planner/samples.h"
#include "support/error_text.h"
#include "toolkit/families/diffusion_planner/frames.h"

namespace dtk {
namespace {

const std::string frames = std::string(DTK_FIXTURES) + "/diffusion_planner/frames";

const test::OriginalNumbers& golden() {
  static const test::OriginalNumbers golden;
  return golden;
}

/// As the original has it, in fp32 or in its own type.
at::Tensor original(const std::string& name) {
  return golden().at("loader." + name, at::kFloat);
}

/// Frames a, b and c in one batch.
diffusion_planner::FrameBatch three_frames() {
  const diffusion_planner::Frames source(frames + "/list.json", {.sizes = test::reduced_sizes()});
  REQUIRE(source.size() == 3);
  const diffusion_planner::FrameBatch batch = source.allocate(3);
  for (int64_t i = 0; i < 3; ++i) source.read(i, batch, i);
  return batch;
}

/// The fixture's tolerance where it lists no error of the original: 1e-6 of the largest value.
void check_close(const at::Tensor& seen, const at::Tensor& expected) {
  REQUIRE(seen.sizes() == expected.sizes());
  REQUIRE(seen.scalar_type() == expected.scalar_type());
  if (seen.scalar_type() != at::kFloat) {
    CHECK(at::equal(seen, expected));
    return;
  }
  const double error = (seen - expected).abs().max().item<double>();
  CHECK(error <= 1e-6 * expected.abs().max().item<double>());
}

}  // namespace

TEST_CASE("diffusion_planner inputs: three frames are collated as the original collates them, bit for bit") {
  const diffusion_planner::FrameBatch batch = three_frames();
  int arrays = 0;
  diffusion_planner::FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
    INFO(key);
    const at::Tensor expected = original("batch." + std::string(key));
    CHECK(tensor.scalar_type() == expected.scalar_type());
    CHECK(at::equal(tensor, expected));
    ++arrays;
  });
  CHECK(arrays == 17);
  // The eighteenth key is the same in all frames, and each reading checks it.
  CHECK(original("batch.version").eq(static_cast<int64_t>(diffusion_planner::kFrameVersion)).all().item<bool>());
}

TEST_CASE("diffusion_planner inputs: every array of a frame of preset H has the original's checksums") {
  const diffusion_planner::Frames source(frames + "/frame_full.json", {});
  const diffusion_planner::FrameBatch batch = source.allocate(1);
  source.read(0, batch, 0);
  const nlohmann::json known = golden().notes()["loader"]["frame_full_checksums"]["keys"];
  diffusion_planner::FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
    INFO(key);
    const nlohmann::json& expected = known.at(std::string(key));
    CHECK(tensor.sizes().vec() == expected["batch_shape"].get<std::vector<int64_t>>());
    const at::Tensor values = tensor.to(at::kDouble).flatten();
    const double scale = expected["abs_sum"].get<double>();
    const auto is = [&](const char* name, const at::Tensor& seen, double margin) {
      INFO(name);
      CHECK(std::abs(seen.item<double>() - expected[name].get<double>()) <= 1e-12 * margin);
    };
    is("sum", values.sum(), scale);
    is("abs_sum", values.abs().sum(), scale);
    is("nonzero", values.ne(0).sum(), 0);
    is("index_weighted_sum", (values * (1 + at::arange(values.numel(), at::kDouble).remainder(97))).sum(),
       97 * scale);
  });
}

TEST_CASE(
    "diffusion_planner inputs: headings become cosine and sine, then values are normalised, as the original "
    "does") {
  diffusion_planner::FrameBatch batch = three_frames();
  diffusion_planner::headings_to_cos_sin(batch);
  diffusion_planner::Normalizer(diffusion_planner::published_scales(33), at::kCPU).normalize(batch);
  diffusion_planner::FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
    INFO(key);
    check_close(tensor, original("norm." + std::string(key)));
  });
  // Frame c stands at the origin: its past of zeros is a past.
  CHECK(at::equal(batch.ego_agent_past[2][0], at::tensor({-0.5F, 0.0F, 1.0F, 0.0F})));
}

TEST_CASE("diffusion_planner inputs: what is not there stays 0") {
  const diffusion_planner::Normalizer normalizer(diffusion_planner::published_scales(33), at::kCPU);
  for (const std::string key : {"neighbor_agents_past", "lanes", "line_strings"}) {
    INFO(key);
    const at::Tensor absent = original("batch." + key).eq(0).all(-1);
    REQUIRE(absent.any().item<bool>());
    CHECK(normalizer.normalized(key, original("batch." + key)).index({absent}).eq(0).all().item<bool>());
  }
}

TEST_CASE("diffusion_planner inputs: futures, with neighbours' absent steps at 0") {
  const diffusion_planner::FrameBatch batch = three_frames();
  const diffusion_planner::Futures futures = diffusion_planner::futures_of(batch.ego_agent_future, batch.neighbor_agents_future);
  check_close(futures.ego, original("fut.ego_future"));
  check_close(futures.neighbors, original("fut.neighbors_future"));
  CHECK(at::equal(futures.neighbor_mask, original("fut.neighbor_future_mask")));
  REQUIRE(futures.neighbor_mask.any().item<bool>());
  CHECK(futures.neighbors.index({futures.neighbor_mask}).eq(0).all().item<bool>());
  // One feature that is not 0 makes a step.
  at::Tensor step = at::zeros({1, 1, 3, 3});
  step[0][0][1][2] = 1e-30F;
  CHECK(at::equal(diffusion_planner::futures_of(at::zeros({1, 3, 3}), step).neighbor_mask.flatten(),
                  at::tensor({1, 0, 1}, at::kInt).to(at::kBool)));
}

TEST_CASE("diffusion_planner inputs: the scale of trajectories, and its inverse") {
  const diffusion_planner::FrameBatch batch = three_frames();
  const diffusion_planner::Futures futures = diffusion_planner::futures_of(batch.ego_agent_future, batch.neighbor_agents_future);
  const at::Tensor two = at::cat({futures.ego.unsqueeze(1), futures.neighbors.narrow(1, 0, 1)}, 1);
  const at::Tensor units = diffusion_planner::to_units(two);
  check_close(units, original("state_norm.ego_future"));
  check_close(diffusion_planner::to_metres(units), two);
  // Zeros are a place, and the numbers are those that a file of scales has.
  const diffusion_planner::FeatureScale scale = diffusion_planner::pose_scale();
  const at::Tensor mean = at::tensor(scale.mean), deviation = at::tensor(scale.std);
  CHECK(at::equal(diffusion_planner::to_units(at::zeros({4})), -mean / deviation));
  CHECK(at::equal(diffusion_planner::to_metres(at::ones({4})), deviation + mean));
}

TEST_CASE("diffusion_planner inputs: a scale that is none is refused") {
  const auto refused = [](const diffusion_planner::FeatureScale& scale) {
    return test::error_text<std::invalid_argument>([&] { diffusion_planner::Normalizer({{"lanes", scale}}, at::kCPU); });
  };
  const std::string allowed = " deviations; allowed: as many of both, at least one, and no deviation of 0";
  CHECK(refused({{1, 2}, {1}}) == "the scale of lanes has 2 means and 1" + allowed);
  CHECK(refused({{}, {}}) == "the scale of lanes has 0 means and 0" + allowed);
  CHECK(refused({{1, 2}, {1, 0}}) == "the scale of lanes has 2 means and 2" + allowed);
}

TEST_CASE("diffusion_planner inputs: upstream's batches have no ego past and no goal") {
  diffusion_planner::FrameSizes sizes = test::tiny_sizes();
  diffusion_planner::FrameBatch batch = test::random_samples(diffusion_planner::FrameLayout::upstream, sizes, 2);
  const at::Tensor lanes = batch.lanes.clone();
  diffusion_planner::headings_to_cos_sin(batch);
  CHECK_FALSE(batch.ego_agent_past.defined());
  diffusion_planner::Normalizer(diffusion_planner::published_scales(sizes.lane_features), at::kCPU).normalize(batch);
  CHECK_FALSE(batch.polygons.defined());
  check_close(batch.lanes.select(-1, 0), (lanes.select(-1, 0) - 10) / 20);
  check_close(batch.lanes.select(-1, 7), lanes.select(-1, 7) / 20);
  check_close(batch.lanes.select(-1, 8), lanes.select(-1, 8));
}

}  // namespace dtk
