// The search for the nearest road border: the dense form's values and gradients, without what that keeps.
#include "toolkit/families/diffusion_planner/penalties.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "support/diffusion_planner/golden.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::largest;

namespace {

// A road of preset H's sizes: borders on both sides, some of 60 line strings no borders, some cut short.
struct Road {
  at::Tensor poses, shape, lines;  // (B, 80, 4), (B, 3), (B, 60, 20, 4)

  explicit Road(int64_t batch, at::ScalarType type = at::kFloat) {
    const at::Generator generator = policies::make_generator(at::kCPU, 11);
    const at::Tensor time = at::arange(80, type).expand({batch, 80});
    const at::Tensor heading = 0.02 * time + 0.3 * at::randn({batch, 80}, generator, type);
    poses = at::stack(
        {time * 0.9, 1.5 * at::randn({batch, 80}, generator, type), heading.cos(), heading.sin()}, -1);
    shape = at::tensor({2.75, 4.9, 1.9}, type).expand({batch, 3});
    const at::Tensor begin = at::rand({batch, 60, 1, 2}, generator, type) * 60;
    const at::Tensor along = at::arange(20, type).view({1, 1, 20, 1}) * at::tensor({1.5, 0.2}, type);
    const at::Tensor points = begin + along - 10 + 0.3 * at::randn({batch, 60, 20, 2}, generator, type);
    const at::Tensor kinds = at::rand({batch, 60, 1, 2}, generator, type).gt(0.4).to(type);
    lines = at::cat({points, kinds.expand({-1, -1, 20, -1})}, -1);
    lines.narrow(1, 3, 5).narrow(2, 12, 8).zero_();
    if (batch > 1) lines.select(0, 1).select(2, 3).zero_();  // a sample without borders
  }
};

// All distances of a sample at once, as one would write it down.
at::Tensor dense(const Road& road, const at::Tensor& poses, const LossOptions& loss) {
  const at::Tensor outline = ego_outline(poses, road.shape, loss).unsqueeze(3);  // (B, T, K, 1, 2)
  const at::Tensor points = road.lines.narrow(3, 0, 2);
  const at::Tensor begin = points.narrow(2, 0, 19).flatten(1, 2).unsqueeze(1).unsqueeze(1);
  const at::Tensor along = points.narrow(2, 1, 19).flatten(1, 2).unsqueeze(1).unsqueeze(1) - begin;
  const at::Tensor from = outline - begin;
  const at::Tensor part = ((from * along).sum(-1) / along.square().sum(-1).clamp_min(1e-8)).clamp(0, 1);
  const at::Tensor square = (from - part.unsqueeze(-1) * along).square().sum(-1).clamp_min(1e-8);
  const at::Tensor there = points.abs().sum(-1).gt(1e-6);
  const at::Tensor border = road.lines.select(3, 3).gt(0.5).any(2, true);
  const at::Tensor valid = (there.narrow(2, 0, 19) & there.narrow(2, 1, 19) & border).flatten(1, 2);
  const at::Tensor no_border = valid.logical_not().unsqueeze(1).unsqueeze(1);
  const at::Tensor lowest = std::get<0>(
      square.masked_fill(no_border, std::numeric_limits<double>::infinity()).flatten(2, 3).min(-1));
  return (loss.border_margin - lowest.sqrt()).relu();
}

at::Tensor searched(const Road& road, const at::Tensor& poses, const LossOptions& loss) {
  return road_border_penalty(poses, road.shape, road.lines, loss);
}

template <class Form>
at::Tensor slope(const Road& road, const Form& form, const LossOptions& loss) {
  const at::Tensor poses = road.poses.detach().clone().requires_grad_(true);
  return torch::autograd::grad({form(road, poses, loss).square().sum()}, {poses}).front();
}

}  // namespace

TEST_CASE(
    "diffusion_planner penalties: chunks of any size give the bits of the dense form, gradients included") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Road road(3, type);
    LossOptions loss;
    const at::Tensor expected = dense(road, road.poses, loss), expected_slope = slope(road, dense, loss);
    CHECK(expected.count_nonzero().item<int64_t>() > 40);
    CHECK(largest(expected[1]) == 0);
    CHECK(largest(expected_slope[1]) == 0);
    CHECK(largest(expected_slope) > 0);
    // One pair; a few steps of a sample; some samples at once; everything.
    for (const int64_t chunk : {int64_t{1}, int64_t{100'000}, int64_t{2'200'000}, int64_t{1} << 40}) {
      INFO(chunk << " in " << type);
      loss.border_chunk = chunk;
      CHECK(at::equal(searched(road, road.poses, loss), expected));
      CHECK(at::equal(slope(road, searched, loss), expected_slope));
    }
  }
}

TEST_CASE("diffusion_planner penalties: a sample keeps kilobytes instead of megabytes until backward") {
  const policies::CountingAllocatorGuard counting;
  const int64_t batch = 2;
  const Road road(batch);
  const LossOptions loss;
  const at::Tensor poses = road.poses.detach().clone().requires_grad_(true);
  const auto kept = [&](const auto& form) {
    const int64_t before = policies::cpu_accounts().live_bytes();
    const at::Tensor penalty = form(road, poses, loss);
    return (policies::cpu_accounts().live_bytes() - before) / batch;
  };
  const int64_t of_dense = kept(dense), of_search = kept(searched);
  INFO(of_dense << " and " << of_search << " bytes a sample");
  CHECK(of_dense > 16 * 960 * 1140);  // for each pair of a point and a segment: four numbers
  CHECK(of_search < 32'000);
}

TEST_CASE("diffusion_planner penalties: the search takes 16 bytes and a flag for each pair of a chunk") {
  const policies::CountingAllocatorGuard counting;
  const Road road(2);
  LossOptions loss;
  const auto grown = [&](int64_t chunk) {
    loss.border_chunk = chunk;
    policies::cpu_accounts().reset_phases("search");
    const int64_t before = policies::cpu_accounts().live_bytes();
    searched(road, road.poses, loss);
    return policies::highest(policies::cpu_accounts().phases()).peak.bytes - before;
  };
  const int64_t pairs = 12 * 1140;  // of a step
  const double more = static_cast<double>(grown(40 * pairs) - grown(20 * pairs));
  CHECK(more == Approx(16.0 * 20 * pairs).epsilon(0.01));  // and the points themselves
}

TEST_CASE("diffusion_planner penalties: without line strings or neighbours there is nothing to come near") {
  const Road road(2);
  const LossOptions loss;
  CHECK(largest(road_border_penalty(road.poses, road.shape, at::zeros({2, 0, 20, 4}), loss)) == 0);
  CHECK(largest(road_border_penalty(road.poses, road.shape, at::zeros({2, 3, 20, 4}), loss)) == 0);
  const Traffic none =
      traffic_of(at::zeros({2, 0, 11}), 1, at::zeros({2, 0, 80, 4}), at::zeros({2, 0, 80}, at::kBool));
  CHECK(collision_penalty(road.poses, road.shape, none, loss).sizes() == at::IntArrayRef({2, 80}));
}

TEST_CASE("diffusion_planner penalties: a neighbour of no kind has a vehicle's margin") {
  const at::Tensor poses = at::tensor({0.0, 0.0, 1.0, 0.0}).view({1, 1, 4}).expand({1, 8, 4});
  const at::Tensor shape = at::tensor({0.0, 4.0, 2.0}).view({1, 3});
  const auto depth = [&](double vehicle, double pedestrian, double bicycle) {
    at::Tensor now = at::zeros({1, 1, 11});
    now[0][0][6] = 2, now[0][0][7] = 4;
    now[0][0][8] = vehicle, now[0][0][9] = pedestrian, now[0][0][10] = bicycle;
    const at::Tensor beside = at::tensor({0.0, 2.1, 1.0, 0.0}).view({1, 1, 1, 4}).expand({1, 1, 8, 4});
    const Traffic traffic = traffic_of(now, 1, beside, at::zeros({1, 1, 8}, at::kBool));
    return collision_penalty(poses, shape, traffic, {}).max().item<double>();
  };
  CHECK(depth(1, 0, 0) == Approx(0.15).epsilon(1e-5));
  CHECK(depth(0, 0, 0) == depth(1, 0, 0));
  CHECK(depth(0, 1, 0) == Approx(0.9).epsilon(1e-5));
  CHECK(depth(0, 0, 1) == Approx(0.4).epsilon(1e-5));
}
