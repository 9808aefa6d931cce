// One trainer that makes a step whenever a line "step" comes in, for benchmarks/step_time/step_time.py, which
// runs it and PyTorch in turns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cxxopts.hpp>

#include "support/bench_setup.h"
#include "support/step_reference.h"
#include "support/step_server.h"
#include "toolkit/device/device.h"
#include "toolkit/families/dit/flops.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/families/dit/trainable.h"
#include "toolkit/report/log.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/train/peak_flops.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;

// The weights, and what the model makes of one batch: output, and the norm of each gradient of its mean
// square.
void write_reference(const std::string& path, const models::Dit& model, int64_t batch, c10::Device device) {
  constexpr int64_t kEnough = 4;  // in fp32, with all activations: a whole batch may not fit
  batch = std::min(batch, kEnough);
  const models::DitOptions& shape = model.options();
  const at::Generator generator = policies::make_generator(at::kCPU, 1);
  const at::Tensor x = at::randn({batch, shape.channels, shape.image_size, shape.image_size}, generator);
  const at::Tensor t = at::rand({batch}, generator) * 1000, y = at::arange(batch) % shape.classes;
  const at::Tensor out = model.forward(x.to(device), t.to(device), y.to(device), /*training=*/false);
  torch::autograd::backward({out.pow(2).mean()}, {});
  std::vector<NamedTensor> tensors = {
      {"reference.x", x}, {"reference.t", t}, {"reference.y", y}, {"reference.out", out.detach()}};
  bench::add_weights_and_gradients(model.parameters(), tensors);
  bench::write_reference_file(path, tensors);
}

// Images per second at which the model's products alone would take all of the device's peak; 0 if not known.
double images_at_peak(const RunConfig& config, c10::Device device, bool bf16) {
  const std::optional<double> peak = bf16 ? peak_flops_of(device_name(device)) : std::nullopt;
  return peak ? *peak / static_cast<double>(dit::training_flops_per_image(dit::options_of(config).model)) : 0;
}

void run(const cxxopts::ParseResult& parsed) {
  const c10::Device device = open_device(parsed["device"].as<std::string>());
  RunConfig config = bench::latent_config(parsed["model"].as<std::string>(), parsed["batch"].as<int64_t>(),
                                          at::get_num_threads());
  dit::options_of(config).model.image_size = parsed["side"].as<int64_t>();
  config.optimizer.clip = 0;
  config.policies = dit::policy_defaults(policies::PolicyOptions::all_off());
  config.policies.attention = {};
  config.policies.fusion = {};
  const bool bf16 = parsed["bf16"].as<bool>();
  if (bf16) config.policies.precision.enabled = policies::Enabled::on;
  const policies::SavedTensorEngineGuard engine;
  MemoryMeters meters(config.memory, device);
  SteadyClock clock;
  Trainer trainer(config, device, bench::latent_data(config, 4096), clock);
  bench::fill_zeros(trainer.model().parameters(), policies::make_generator(device, 2));
  if (const auto path = parsed["reference"].as<std::string>(); !path.empty()) {
    const auto same = trainer.model().with_own_seam();  // compared without policies, in fp32
    write_reference(path, dynamic_cast<const dit::TrainableDit&>(*same).dit(), config.data.batch, device);
    meters.begin_again();  // the peak is a step's
  }
  // As a run makes a step, which reads the norm of the gradients where it logs one.
  const auto step = [&] {
    trainer.step(/*measured=*/is_log_step(trainer.steps() + 1, TrainOptions().log_every));
  };
  bench::serve(step, device,
               {{"peak", [&] { return static_cast<double>(meters.report()->peak().peak.bytes); }},
                {"images_at_peak", [&] { return images_at_peak(config, device, bf16); }}});
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("step-time", "Makes a training step for each line \"step\" of its input");
  options.add_options()("model", "published size", cxxopts::value<std::string>()->default_value("DiT-S/4"))(
      "batch", "samples of a step", cxxopts::value<int64_t>()->default_value("1"))(
      "side", "width and height of the latents", cxxopts::value<int64_t>()->default_value("32"))(
      "device", "cpu | cuda", cxxopts::value<std::string>()->default_value("cpu"))(
      "bf16", "under bf16 autocast", cxxopts::value<bool>()->default_value("false"))(
      "reference", "file for weights and one output", cxxopts::value<std::string>()->default_value(""));
  return bench::main_of("step-time", options, argc, argv,
                        [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
