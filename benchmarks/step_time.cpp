// One trainer that makes a step whenever a line "step" comes in, for benchmarks/step_time.py, which runs it
// and PyTorch in turns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/toolkit/device.h>
#include <dtk/toolkit/file_system.h>
#include <dtk/toolkit/memory_meters.h>
#include <dtk/toolkit/model_flops.h>
#include <dtk/toolkit/run_log.h>
#include <dtk/toolkit/safetensors.h>
#include <dtk/toolkit/trainable_dit.h>
#include <dtk/toolkit/trainer.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <cxxopts.hpp>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>

#include "bench_setup.h"

namespace {

using namespace dtk;

// adaLN-zero makes the output of a fresh model 0 whatever its blocks do: a comparison would prove nothing.
void fill_zeros(const TrainableModel& model, const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : model.parameters()) {
    if (!parameter.requires_grad() || parameter.any().item<bool>()) continue;
    at::Tensor(parameter).normal_(0, 0.02, generator);
  }
}

// The weights, and what the model makes of one batch: output, and the norm of each gradient of its mean
// square.
void write_reference(const std::string& path, const models::Dit& model, int64_t batch, c10::Device device) {
  const models::DitOptions& shape = model.options();
  const at::Generator generator = policies::make_generator(at::kCPU, 1);
  const at::Tensor x = at::randn({batch, shape.channels, shape.image_size, shape.image_size}, generator);
  const at::Tensor t = at::rand({batch}, generator) * 1000, y = at::arange(batch) % shape.classes;
  const at::Tensor out = model.forward(x.to(device), t.to(device), y.to(device), /*training=*/false);
  torch::autograd::backward({out.pow(2).mean()}, {});
  std::vector<NamedTensor> tensors = {
      {"reference.x", x}, {"reference.t", t}, {"reference.y", y}, {"reference.out", out.detach()}};
  for (const auto& [name, parameter] : model.parameters()) {
    tensors.push_back({"weight." + name, parameter.detach()});
    if (!parameter.requires_grad()) continue;
    tensors.push_back({"gradient_norm." + name, parameter.grad().norm()});
    parameter.mutable_grad().reset();
  }
  write_file_atomically(posix_file_system(), path,
                        [&](WritableFile& file) { write_safetensors(file, tensors); });
}

// Calls of each operator, counted while `run` runs. The observer is a plain function, so the counts are
// static.
std::map<std::string, int> count_operators(const std::function<void()>& run) {
  static std::mutex mutex;
  static std::map<std::string, int> counts;
  counts.clear();
  const auto observer = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    const std::lock_guard lock(mutex);
    ++counts[fn.name()];
    return nullptr;
  };
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback(observer).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return counts;
}

void print_operators(Trainer& trainer) {
  for (const auto& [name, count] : count_operators([&] { trainer.step(); }))
    std::printf("%s %d\n", name.c_str(), count);
  std::printf("end 0\n");
}

// Images per second at which the model's products alone would take all of the device's peak; 0 if not known.
double images_at_peak(const RunConfig& config, c10::Device device, bool bf16) {
  const std::optional<double> peak = bf16 ? peak_flops_of(device_name(device)) : std::nullopt;
  return peak ? *peak / static_cast<double>(training_flops_per_image(config.model)) : 0;
}

void serve(Trainer& trainer, const MemoryMeters& meters, c10::Device device, double images_at_peak) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  SteadyClock clock;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "peak") {
      std::printf("peak %lld\n", static_cast<long long>(meters.report()->peak().peak.bytes));
    } else if (line == "images_at_peak") {
      std::printf("images_at_peak %.6g\n", images_at_peak);
    } else if (line == "operators") {
      print_operators(trainer);
    } else if (line == "step") {
      const double begin = clock.seconds();
      // As a run makes it, which reads the norm of the gradients where it logs one.
      trainer.step(/*measured=*/is_log_step(trainer.steps() + 1, TrainOptions().log_every));
      if (!device.is_cpu()) guard.synchronizeDevice(device.index());
      std::printf("ms %.4f\n", 1000 * (clock.seconds() - begin));
    } else {
      throw std::invalid_argument("unknown request: " + line);
    }
    std::fflush(stdout);
  }
}

void run(const cxxopts::ParseResult& parsed) {
  const c10::Device device = open_device(parsed["device"].as<std::string>());
  RunConfig config = bench::latent_config(parsed["model"].as<std::string>(), parsed["batch"].as<int64_t>(),
                                          at::get_num_threads());
  config.optimizer.clip = 0;
  config.policies = policies::PolicyOptions::all_off();
  config.policies.attention = {};
  const bool bf16 = parsed["bf16"].as<bool>();
  if (bf16) config.policies.precision.enabled = policies::Enabled::on;
  const policies::SavedTensorEngineGuard engine;
  MemoryMeters meters(config.memory, device);
  SteadyClock clock;
  Trainer trainer(config, device, bench::latent_data(config, 4096), clock);
  fill_zeros(trainer.model(), policies::make_generator(device, 2));
  if (const auto path = parsed["reference"].as<std::string>(); !path.empty())
    write_reference(path, dynamic_cast<const TrainableDit&>(trainer.model()).dit(), config.data.batch,
                    device);
  std::printf("ready %d\n", at::get_num_threads());
  std::fflush(stdout);
  serve(trainer, meters, device, images_at_peak(config, device, bf16));
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("step-time", "Makes a training step for each line \"step\" of its input");
  options.add_options()("model", "published size", cxxopts::value<std::string>()->default_value("DiT-S/4"))(
      "batch", "samples of a step", cxxopts::value<int64_t>()->default_value("1"))(
      "device", "cpu | cuda", cxxopts::value<std::string>()->default_value("cpu"))(
      "bf16", "under bf16 autocast", cxxopts::value<bool>()->default_value("false"))(
      "reference", "file for weights and one output", cxxopts::value<std::string>()->default_value(""));
  return bench::main_of("step-time", options, argc, argv,
                        [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
