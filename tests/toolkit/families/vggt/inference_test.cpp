// What a VGGT takes to infer: planned and measured, by frames, with and without each policy.
#include "toolkit/families/vggt/inference.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <cmath>

#include "support/catch.h"
#include "support/config_text.h"
#include "support/device/devices.h"
#include "support/plans/plan_accuracy.h"
#include "support/same_bits.h"
#include "support/vggt/scenes.h"
#include "toolkit/plan/inference.h"
#include "toolkit/plan/inference_counts.h"

using namespace dtk;
using dtk::test::kCpu;
using dtk::test::kCuda;
using policies::PhasePeak;

namespace {

constexpr int64_t kHeight = 56, kWidth = 84, kTokens = 4 * 6 + 5;

// Sizes that divide a few frames.
const std::vector<std::string> kChunks = {"policies.inference.frame_chunk=2",
                                          "policies.inference.token_chunk=40",
                                          "policies.inference.head_chunk=3"};

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

LoadedConfig job(int64_t frames, const std::vector<std::string>& overrides) {
  LoadedConfig loaded = test::tiny_vggt_config(overrides);
  loaded.inferred = frames;
  return loaded;
}

vggt::Scene scene_of(int64_t frames) {
  const at::Tensor all = at::rand({frames, 3, kHeight, kWidth}, at::detail::createCPUGenerator(3));
  return {frames, kHeight, kWidth,
          [all](int64_t first, int64_t count) { return all.narrow(0, first, count).clone(); }};
}

test::KeptResults inferred(int64_t frames, const std::vector<std::string>& overrides,
                           const Weights* weights = nullptr) {
  test::KeptResults results;
  REQUIRE(vggt::infer(job(frames, overrides).config, kCpu, weights, scene_of(frames), results));
  return results;
}

std::vector<PhasePeak> measured(const LoadedConfig& loaded) {
  const policies::CountingAllocatorGuard counting;
  policies::cpu_accounts().reset_phases("build");
  const vggt::Scene scene{*loaded.inferred, kHeight, kWidth, [](int64_t, int64_t count) {
                            return at::empty({count, 3, kHeight, kWidth}).zero_();
                          }};
  vggt::Results none;
  vggt::infer(loaded.config, kCpu, nullptr, scene, none);
  return policies::cpu_accounts().phases();
}

int64_t saved_bytes(const std::vector<PhasePeak>& phases) {
  int64_t most = 0;
  for (const PhasePeak& phase : phases) most = std::max(most, phase.peak.of(policies::Category::saved));
  return most;
}

int64_t peak_of(int64_t frames, const std::vector<std::string>& overrides, c10::Device device = kCuda) {
  return make_plan(job(frames, overrides), device).memory.peak().peak.bytes;
}

double farthest(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() /
         b.to(at::kDouble).abs().max().item<double>();
}

}  // namespace

TEST_CASE("an inference of 1 to 16 frames takes what is planned, every storage of it") {
  const auto frames = GENERATE(range(int64_t{1}, int64_t{17}));
  const auto overrides = GENERATE_COPY(
      std::vector<std::string>{}, kChunks, with(kChunks, {"policies.inference.taps=tapped"}),
      std::vector<std::string>{"policies.inference.enabled=false"}, with(kChunks, {"vggt.points=true"}));
  CAPTURE(frames, overrides);
  const PlanAccuracy accuracy = plan_accuracy(job(frames, overrides));
  INFO(described(accuracy.differences));
  CHECK(accuracy.differences.empty());
  CHECK(accuracy.storages > 500);
}

TEST_CASE("nothing is saved for backward, and gradients that are left on by mistake are seen") {
  CHECK(saved_bytes(plan_inference(job(5, {}), kCpu).memory.device) == 0);
  CHECK(saved_bytes(measured(job(5, {}))) == 0);
  const LoadedConfig mistaken = job(5, {"policies.inference.gradients=true"});
  const int64_t planned = saved_bytes(plan_inference(mistaken, kCpu).memory.device);
  CHECK(planned > 20'000'000);
  CHECK(planned == saved_bytes(measured(mistaken)));
}

TEST_CASE("cameras, depths and points are those of a pass without policies") {
  const auto found = [](const std::vector<std::string>& overrides) {
    return inferred(5, with({"vggt.points=true"}, overrides));
  };
  const test::KeptResults off = found({"policies.inference.enabled=false"});
  struct Kept {
    std::vector<std::string> overrides;
    bool same_bits;
  };
  const std::string none = "policies.inference.frame_chunk=0";
  const auto kept = GENERATE_COPY(values<Kept>({
      {{"policies.inference.taps=all"}, true},
      {{"policies.inference.taps=tapped", "policies.inference.token_chunk=0"}, true},
      {{"policies.inference.gradients=true", "policies.inference.taps=all"}, true},
      {{}, false},
      {kChunks, false},
      {{"policies.inference.frame_chunk=1"}, false},
      {{"policies.inference.query_chunk=7"}, false},
      {{"policies.inference.head_chunk=1"}, false},
  }));
  CAPTURE(kept.overrides);
  const test::KeptResults on = found(kept.overrides);
  for (const auto& [a, b] : {std::pair(on.poses, off.poses),
                             {on.depths, off.depths},
                             {on.depth_confidence, off.depth_confidence},
                             {on.points, off.points},
                             {on.points_confidence, off.points_confidence}}) {
    REQUIRE(a.sizes() == b.sizes());
    CHECK(farthest(a, b) <= 1e-5);
    if (kept.same_bits) CHECK(test::same_bits(a, b));
  }
}

TEST_CASE("in bf16 chunks bring no result further from fp64 than 1.5 times what all rows at once are") {
  constexpr int64_t kFrames = 5;
  const models::VggtOptions options = vggt::options_of(job(kFrames, {}).config).model;
  // The same weights in both: numbers that bf16 has.
  const models::Vggt exact(options, kCpu, policies::make_generator(kCpu, 4), {at::kDouble, at::kDouble});
  Weights weights;
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : exact.parameters()) {
    const at::Tensor narrow = parameter.to(at::kBFloat16).to(at::kFloat);
    at::Tensor(parameter).copy_(narrow);
    weights.tensors.push_back({name, at::kFloat, narrow.sizes().vec(), [narrow] { return narrow.clone(); }});
  }
  const models::VggtOutputs outputs =
      exact.forward(scene_of(kFrames).read(0, kFrames).to(at::kDouble).unsqueeze(0));
  const std::vector<std::string> bf16{"policies.precision.enabled=true", "vggt.infer.narrow_heads=true"};
  const test::KeptResults whole = inferred(kFrames,
                                           with(bf16, {"policies.inference.token_chunk=0",
                                                       "policies.inference.frame_chunk=0",
                                                       "policies.inference.head_chunk=0"}),
                                           &weights),
                          some = inferred(kFrames, with(bf16, kChunks), &weights);
  for (const auto& [name, one, all, wanted] :
       {std::tuple("depths", some.depths, whole.depths, outputs.depths[0]),
        {"confidence", some.depth_confidence, whole.depth_confidence, outputs.depth_confidence[0]},
        {"poses", some.poses, whole.poses, outputs.poses[0]}}) {
    CAPTURE(name);
    const double off = farthest(all, wanted);
    CHECK(off > 1e-5);  // it is bf16
    CHECK(off < 0.1);   // of the same network
    CHECK(farthest(one, wanted) <= 1.5 * off);
  }
}

TEST_CASE("weights that are not held narrow are cast, and heads stay in fp32") {
  const std::vector<std::string> cast{"policies.precision.enabled=true",
                                      "policies.inference.narrow_weights=false"};
  const test::KeptResults exact = inferred(3, {"policies.inference.enabled=false"}), some = inferred(3, cast),
                          all = inferred(3, with(cast, {"policies.precision.fp32=[]"}));
  CHECK(farthest(some.depths, exact.depths) > 1e-5);
  CHECK(farthest(some.depths, exact.depths) < 0.5 * farthest(all.depths, exact.depths));
}

TEST_CASE("each part of the policy lowers the peak of its phase, or holds what the law says") {
  constexpr int64_t kFrames = 40, kC = 64, kFloat = 4;
  const std::vector<std::string> all = with(kChunks, {"policies.inference.narrow_weights=true"});
  const auto phase_of = [&](const char* phase, const std::string& left_out) {
    const Plan plan = make_plan(
        job(kFrames, left_out.empty() ? all : with(all, {"policies.inference." + left_out})), kCuda);
    return policies::phase_named(plan.memory.phases, phase)->peak.bytes;
  };
  for (const auto& [phase, left_out] : {std::pair("encode", "frame_chunk=0"),
                                        {"aggregate", "frame_chunk=0"},
                                        {"aggregate", "token_chunk=0"},
                                        {"depth", "head_chunk=0"},
                                        {"camera", "taps=tapped"},
                                        {"camera", "taps=all"},
                                        {"encode", "gradients=true"}}) {
    CAPTURE(phase, left_out);
    CHECK(phase_of(phase, left_out) > phase_of(phase, ""));
  }
  // Each of the six entries is 2C numbers a token, and so are two that no head reads.
  const auto camera_phase = [&](const char* taps) {
    const Plan plan =
        make_plan(job(kFrames, with(all, {std::string("policies.inference.taps=") + taps})), kCuda);
    return policies::phase_named(plan.memory.phases, "camera")->peak.bytes;
  };
  const int64_t entry = kFrames * kTokens * 2 * kC * kFloat;
  CHECK(camera_phase("all") - camera_phase("tapped") == 2 * entry);
  // Projected, 16 + 24 + 32 + 32 numbers of a patch wait for four entries.
  CHECK(camera_phase("tapped") - camera_phase("projected") ==
        4 * entry - kFrames * (kTokens - 5) * (16 + 24 + 32 + 32) * kFloat);
}

TEST_CASE(
    "checkpointing frees nothing without a backward pass, and is refused with both peaks, which are equal") {
  const auto refused = [](const std::vector<std::string>& overrides) {
    return test::error_text<ConfigError>([&] { policies_without_use(job(4, overrides), kCuda); });
  };
  const std::string peak = std::to_string(peak_of(4, {}));
  CHECK(refused({"policies.checkpoint.enabled=true"}) ==
        "--set policies.checkpoint.enabled=true: policies.checkpoint.enabled = true has no effect on a job "
        "that "
        "only infers: no backward pass: 0 bytes are kept, so recomputing frees none; the peak with it is " +
            peak + " bytes, without " + peak + "; remove it");
  CHECK(refused({"policies.ema.enabled=true"}).find("nothing is trained here") != std::string::npos);
  CHECK(refused({"policies.checkpoint.keep=offload"}).find("keep = \"offload\" has no effect on a job") !=
        std::string::npos);
  // Where the aggregator leads, whose form depends on the policies, with and without is equal, too.
  for (const char* const taps : {"projected", "all"}) {
    const std::vector<std::string> many =
        with(kChunks, {std::string("policies.inference.taps=") + taps, "vggt.depths=false"});
    LoadedConfig loaded = job(300, many);
    loaded.config.train.steps = 10;
    loaded.config.policies.checkpoint.enabled = policies::Enabled::on;
    const std::string bytes = std::to_string(peak_of(300, many));
    CHECK(policies_without_use(loaded, kCuda)
              .front()
              .ends_with("with it is " + bytes + " bytes, without " + bytes));
  }
  // What a run asked for its training is a line.
  LoadedConfig trained = job(4, {});
  trained.config.train.steps = 10;
  trained.config.policies.checkpoint.enabled = policies::Enabled::on;
  const std::vector<std::string> lines = policies_without_use(trained, kCuda);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("checkpoint: no backward pass: 0 bytes are kept") == 0);
  trained.config.train.steps.reset();
  CHECK_THROWS_AS(policies_without_use(trained, kCuda), ConfigError);
}

TEST_CASE("passes of a chunk loop are folded: a plan of 40 frames is the one of every pass") {
  const LoadedConfig loaded = job(40, kChunks);
  planner::SimulationOptions whole;
  whole.fold = false;
  const c10::Device device = GENERATE(kCpu, kCuda);
  const PlannedRun folded = plan_inference(loaded, device), every = plan_inference(loaded, device, whole);
  CHECK(folded.memory.folded.at("chunks of rows") > 100);
  CHECK(every.memory.folded.empty());
  REQUIRE(folded.memory.device.size() == every.memory.device.size());
  for (size_t i = 0; i < every.memory.device.size(); ++i)
    CHECK(folded.memory.device[i].peak.bytes == every.memory.device[i].peak.bytes);
  CHECK(folded.memory.steady_step() == every.memory.steady_step());
}

TEST_CASE("bytes by frames are pieces of lines, which a plan of any count lies on") {
  const LoadedConfig loaded = test::tiny_vggt_config(kChunks);
  const CountTable table = plan_counts(loaded, kCuda, {1, 1000});
  CHECK(table.planned < 100);
  CHECK(table.leading.front().first == 1);
  CHECK(table.leading.back().last == 1000);
  uint64_t draws = 1;
  for (int i = 0; i < 50; ++i) {
    draws = draws * 6364136223846793005U + 1442695040888963407U;
    const int64_t count = 1 + static_cast<int64_t>((draws >> 33U) % 1000);
    CAPTURE(count);
    LoadedConfig one = loaded;
    one.inferred = count;
    const Plan plan = make_plan(one, kCuda);
    const PhasePeak highest = plan.memory.peak();
    for (const PhasePieces& phase : table.phases) {
      CAPTURE(phase.phase);
      const auto piece = std::find_if(phase.pieces.begin(), phase.pieces.end(),
                                      [&](const LinearPiece& each) { return count <= each.last; });
      REQUIRE(piece != phase.pieces.end());
      CHECK(piece->bytes(count) == policies::phase_named(plan.memory.phases, phase.phase)->peak.bytes);
    }
    const auto leads = std::find_if(table.leading.begin(), table.leading.end(),
                                    [&](const LeadingPhase& each) { return count <= each.last; });
    CHECK(leads->phase == highest.name);
  }
}

TEST_CASE("pieces of lines are found from a few values") {
  int asked = 0;
  const auto bytes = [&](int64_t n) {
    ++asked;
    return n <= 9 ? 100 + 50 * n : 320 + 30 * n;
  };
  const std::vector<LinearPiece> pieces = linear_pieces(1000, bytes);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0] == LinearPiece{1, 9, 100, 50});
  CHECK(pieces[1] == LinearPiece{10, 1000, 320, 30});
  CHECK(asked < 60);
  CHECK(linear_pieces(1, bytes).size() == 1);
}

TEST_CASE("a VGGT of the published size infers 1,000 frames within 24 GB") {
  const auto planned = [](int64_t frames, const std::vector<std::string>& overrides = {}) {
    LoadedConfig loaded = parse_config(
        "[train]\nmodel = \"vggt\"\n[vggt]\npreset = \"1b\"\n[vggt.data]\nheight = 336\nwidth = 518\n",
        "vggt.toml", overrides);
    loaded.inferred = frames;
    return make_plan(loaded, kCuda);
  };
  const Plan thousand = planned(1000);
  CHECK(thousand.memory.peak().peak.bytes == 16'798'515'408);
  CHECK(thousand.bytes_in(Capacity::device) < 24'000'000'000);
  CHECK(thousand.seconds < 0.5);
  constexpr int64_t kTokensOfFrame = 24 * 37 + 5;
  const int64_t slope = planned(1001).memory.peak().peak.bytes - thousand.memory.peak().peak.bytes;
  CHECK(slope == 13'909'248);
  CHECK(slope <= 22'000 * kTokensOfFrame);
  const std::string narrow = "vggt.infer.narrow_heads=true";
  CHECK(planned(1001, {narrow}).memory.peak().peak.bytes - planned(1000, {narrow}).memory.peak().peak.bytes <
        slope);
  const auto flops = [&](const std::vector<std::string>& overrides) {
    return static_cast<double>(planned(50, overrides).step.without_grad);
  };
  CHECK(flops({}) <= 1.01 * flops({"policies.inference.frame_chunk=0", "policies.inference.token_chunk=0",
                                   "policies.inference.head_chunk=0"}));
}
