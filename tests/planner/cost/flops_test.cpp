#include "toolkit/families/dit/flops.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/simulation.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/runs/tiny_run.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/planned_run.h"

using namespace dtk;
using planner::Flops;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;

LoadedConfig config(const std::string& file, const std::vector<std::string>& set) {
  return load_config(posix_file_system(), DTK_SOURCE_DIR "/configs/" + file, set);
}

Flops steady_step(const LoadedConfig& loaded, c10::Device device) {
  LoadedConfig one_thread = loaded;
  one_thread.config.train.threads = 1;
  return plan_run(one_thread, device).memory.steps.at(1);
}

// Per image; D hidden, T tokens, p patch: qkv, proj, fc1, fc2, q kᵀ, weights v, modulation.
int64_t block_flops(const models::DitOptions& given) {
  const models::DitOptions model = models::resolved(given);
  const int64_t D = *model.hidden, T = model.tokens();
  const auto inner = static_cast<int64_t>(static_cast<double>(D) * model.mlp_ratio);
  return 2 * (T * (4 * D * D + 2 * D * inner) + 2 * T * T * D + 6 * D * D);
}

// What backward has no need of: gradients of the image's patches and of the time's sines and cosines.
int64_t gradients_of_inputs(const models::DitOptions& given) {
  const models::DitOptions model = models::resolved(given);
  return 2 * (model.tokens() * *model.hidden * *model.patch * *model.patch * model.channels +
              256 * *model.hidden);
}

Flops flops_of(c10::Device device, const std::function<void()>& job) {
  return planner::simulate(device,
                           [&](const planner::EndOfPlan&) {
                             job();
                             policies::step_done();
                           })
      .steps.at(0);
}

}  // namespace

TEST_CASE("a planned step of DiT-XL/2 has the FLOPs of the published model, pass by pass") {
  const LoadedConfig loaded = config("dit_xl2_latents.toml", {"data.batch=4", "train.accumulate=2"});
  const models::DitOptions& model = dit::options_of(loaded.config).model;
  const Flops step = steady_step(loaded, kCuda);
  CHECK(step.forward == 4 * 2 * dit::forward_multiply_adds(model));
  CHECK(std::llround(static_cast<double>(step.forward) / (4 * 2) / 1e8) == 1186);  // 118.6 GMAC an image
  CHECK(step.forward + step.backward + 4 * gradients_of_inputs(model) ==
        4 * dit::training_flops_per_image(model));
  // Each block is recomputed, but for nothing that is a product: an early stop saves element-wise operators
  // only.
  CHECK(step.recomputed == 4 * 28 * block_flops(model));
  CHECK(step.attention_recomputed == int64_t{4} * 28 * 2 * 256 * 256 * 1152);
  CHECK(step.without_grad == 0);
}

TEST_CASE("each set that blocks keep leaves out the products that made it") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const std::string fusion = GENERATE("policies.fusion.enabled=false", "policies.fusion.cuda=true");
  const auto recomputed = [&](const std::string& keep) {
    return steady_step(config("dit_xl2_latents.toml",
                              {"data.batch=4", "train.accumulate=2", fusion, "policies.precision.cpu=fp32",
                               "policies.checkpoint.keep=" + keep}),
                       device)
        .recomputed;
  };
  constexpr int64_t D = 1152, T = 256, kBlocks = 4 * 28;  // of all images
  constexpr int64_t kModulation = kBlocks * 12 * D * D;   // of an image, not of a token
  constexpr int64_t kTokens = kBlocks * T, kAttention = 4 * T * D;
  CAPTURE(device, fusion);
  CHECK(recomputed("elementwise") == kModulation);
  CHECK(recomputed("attention") == kModulation + kTokens * (6 + 8) * D * D);
  CHECK(recomputed("gates") == kModulation + kTokens * ((6 + 8) * D * D + kAttention));
  CHECK(recomputed("fc2") == kModulation + kTokens * ((6 + 8 + 2) * D * D + kAttention));
  CHECK(recomputed("block") == kModulation + kTokens * (24 * D * D + kAttention));
}

TEST_CASE("what is recomputed is known by module") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  LoadedConfig loaded = config("base.toml", {"policies.precision.cpu=fp32", "train.threads=1",
                                             "policies.checkpoint.targets=[\"blocks.1\", \"blocks.3\"]"});
  const planner::SimulationResult plan = plan_run(loaded, device).memory;
  const int64_t once = 16 * block_flops(dit::options_of(loaded.config).model);
  CHECK(plan.recomputed == std::map<std::string, int64_t>{{"blocks.1", once}, {"blocks.3", once}});
  CHECK(plan.steady_step().recomputed == 2 * once);
}

TEST_CASE("without checkpointing and fused attention nothing is recomputed, and the rest is as before") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const std::vector<std::string> plain = {"policies.precision.cpu=fp32"};
  const Flops on = steady_step(config("base.toml", plain), device);
  auto off_set = plain;
  for (const char* policy : {"checkpoint", "attention", "precision"})
    off_set.push_back("policies." + std::string(policy) + ".enabled=false");
  const LoadedConfig loaded = config("base.toml", off_set);
  const Flops off = steady_step(loaded, device);
  const models::DitOptions& model = dit::options_of(loaded.config).model;
  CHECK(off.forward == 16 * 2 * dit::forward_multiply_adds(model));
  CHECK(off.forward + off.backward + 16 * gradients_of_inputs(model) ==
        16 * dit::training_flops_per_image(model));
  CHECK(off.recomputed == 0);
  CHECK(off.attention_recomputed == 0);
  CHECK(on.forward == off.forward);
  CHECK(on.backward == off.backward);
  CHECK(on.recomputed == 16 * *model.depth * block_flops(model));
  CHECK(on.attention_recomputed > 0);
}

TEST_CASE("products, convolutions and attention are counted by their shapes") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const auto ones = [&](at::IntArrayRef sizes) { return at::ones(sizes, device); };
  CHECK(flops_of(device, [&] { at::mm(ones({3, 5}), ones({5, 7})); }) == Flops{.forward = 2 * 3 * 5 * 7});
  CHECK(flops_of(device, [&] { at::addmm(ones({7}), ones({3, 5}), ones({5, 7})); }).forward == 2 * 3 * 5 * 7);
  CHECK(flops_of(device, [&] {
          at::linear(ones({2, 3, 5}), ones({7, 5}), ones({7}));
        }).forward == 2 * 2 * 3 * 5 * 7);
  CHECK(flops_of(device, [&] { at::matmul(ones({2, 3, 5}), ones({2, 5, 7})); }).forward == 2 * 2 * 3 * 5 * 7);
  CHECK(flops_of(device, [&] {
          at::baddbmm(ones({2, 3, 7}), ones({2, 3, 5}), ones({2, 5, 7}));
        }).forward == 2 * 2 * 3 * 5 * 7);
  CHECK(flops_of(device, [&] {
          at::Tensor out = at::empty({3, 7}, device);
          at::mm_out(out, ones({3, 5}), ones({5, 7}));
        }).forward == 2 * 3 * 5 * 7);
  CHECK(flops_of(device, [&] {
          const at::AutoGradMode no_grad(false);
          at::mm(ones({3, 5}), ones({5, 7}));
        }) == Flops{.without_grad = 2 * 3 * 5 * 7});
  CHECK(flops_of(device, [&] { at::add(ones({3, 5}), ones({3, 5})); }) == Flops{});
}

TEST_CASE("a convolution's two gradients cost as much as it does each") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const bool input_gradient = GENERATE(true, false);
  const Flops flops = flops_of(device, [&] {
    const at::Tensor x = at::ones({2, 4, 9, 9}, device).requires_grad_(input_gradient);
    const at::Tensor weight = at::ones({6, 2, 3, 3}, device).requires_grad_();  // two groups
    const at::Tensor y = at::conv2d(x, weight, {}, 2, 1, 1, 2);
    CHECK(y.sizes() == at::IntArrayRef({2, 6, 5, 5}));
    torch::autograd::backward({y.sum()}, {});
  });
  const int64_t once = 2 * (2 * 6 * 5 * 5) * (2 * 3 * 3);
  CHECK(flops.forward == once);
  CHECK(flops.backward == (input_gradient ? 2 : 1) * once);
}

TEST_CASE("a fused attention recomputes its scores in backward") {
  const c10::Device device = GENERATE(kCuda, kCpu);
  const Flops flops = flops_of(device, [&] {
    const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
    const at::Tensor q = at::ones({2, 3, 5, 8}, options).requires_grad_();
    const at::Tensor k = at::ones({2, 3, 11, 8}, options).requires_grad_(), v = at::ones_like(k);
    torch::autograd::backward({at::scaled_dot_product_attention(q, k, v).sum()}, {});
  });
  const int64_t product = 2 * (2 * 3 * 5) * 11 * 8;
  CHECK(flops == Flops{.forward = 2 * product, .backward = 4 * product, .attention_recomputed = product});
}
