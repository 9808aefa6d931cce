// The table of all sixteen combinations of the four policies: one model, one batch, peak, saved bytes, step
// time and how the gradients compare with those of the run without any.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/toolkit/device.h>
#include <dtk/toolkit/memory_meters.h>
#include <dtk/toolkit/memory_report.h>
#include <dtk/toolkit/precision_choice.h>
#include <dtk/toolkit/streams.h>
#include <dtk/toolkit/trainer.h>

#include <cmath>
#include <cstdio>
#include <cxxopts.hpp>

#include "bench_setup.h"

namespace {

using namespace dtk;
using bench::Combination;

struct Arguments {
  std::string model, device;
  int64_t batch, steps;
  bool bytes;  // print plain bytes, for programs
};

struct Row {
  int64_t peak = 0, saved = 0, host = 0;  // bytes
  std::vector<double> milliseconds;
  std::vector<std::vector<float>> gradients;  // of the first step, by parameter
};

// Published initial weights give zero output and mostly zero gradients; random ones keep every path alive.
void randomise(Trainer& trainer, c10::Device device) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = policies::make_generator(device, stream_seed(1, "benchmark"));
  for (const auto& [name, parameter] : trainer.model().parameters()) {
    if (parameter.requires_grad())
      parameter.detach().add_(at::empty_like(parameter).normal_(0, 0.02, generator));
  }
}

void synchronize(c10::Device device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

// Outside of LibTorch's memory, which is being measured.
std::vector<std::vector<float>> copied_gradients(const Trainer& trainer) {
  std::vector<std::vector<float>> all;
  for (const auto& [name, parameter] : trainer.model().parameters()) {
    if (!parameter.grad().defined()) continue;
    const at::Tensor gradient = parameter.grad().to(at::kCPU).contiguous();
    const float* values = gradient.const_data_ptr<float>();
    all.emplace_back(values, values + gradient.numel());
  }
  return all;
}

Row measure(const RunConfig& config, c10::Device device, const std::shared_ptr<const DataSource>& data,
            int64_t steps) {
  Row row;
  SteadyClock clock;
  {
    Trainer trainer(config, device, data, clock);
    randomise(trainer, device);
    trainer.accumulate_gradients();
    row.gradients = copied_gradients(trainer);
  }
  const MemoryMeters meters(config.memory, device);
  Trainer trainer(config, device, data, clock);
  randomise(trainer, device);
  for (int64_t step = 0; step <= steps; ++step) {
    synchronize(device);
    const double begin = clock.seconds();
    trainer.step();
    synchronize(device);
    if (step > 0) row.milliseconds.push_back(1000 * (clock.seconds() - begin));  // the first warms up
  }
  const MemoryReport report = *meters.report();
  row.peak = report.peak().peak.bytes;
  row.host = report.host.peak.bytes;
  for (const policies::PhasePeak& phase : report.phases) {
    if (phase.name == "forward") row.saved = phase.peak.of(policies::Category::saved);
  }
  return row;
}

std::string compared(const Row& row, const Row& none) {
  double largest = 0;
  bool equal = true;
  for (size_t i = 0; i < none.gradients.size(); ++i) {
    double difference = 0, norm = 0;
    for (size_t j = 0; j < none.gradients[i].size(); ++j) {
      const double a = row.gradients[i][j], b = none.gradients[i][j];
      equal = equal && row.gradients[i][j] == none.gradients[i][j];
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    if (norm > 0) largest = std::max(largest, std::sqrt(difference / norm));
  }
  if (equal) return "bit-equal";
  char text[64];
  std::snprintf(text, sizeof text, "relative error %.1e", largest);
  return text;
}

std::string size_text(int64_t bytes, bool plain) {
  if (plain) return std::to_string(bytes);
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / 1048576);
  return text;
}

void print_row(const Combination& on, const Row& row, const Row& none, c10::Device device, bool plain) {
  const auto word = [](bool is_on) { return is_on ? "on" : "-"; };
  const auto [least, most] = std::minmax_element(row.milliseconds.begin(), row.milliseconds.end());
  // A device's allocator knows no owners.
  const std::string saved = device.is_cpu() ? size_text(row.saved, plain) : "not measured";
  std::printf("| %s | %s | %s | %s | %s | %s | %s | %.0f (%.0f-%.0f) | %s |\n", word(on.precision),
              word(on.attention), word(on.ema), word(on.checkpoint), size_text(row.peak, plain).c_str(),
              saved.c_str(), size_text(row.host, plain).c_str(), bench::median(row.milliseconds), *least,
              *most, compared(row, none).c_str());
  std::fflush(stdout);
}

void run(const Arguments& arguments) {
  const c10::Device device = open_device(arguments.device);
  const policies::SavedTensorEngineGuard engine;
  LoadedConfig loaded;
  loaded.config = bench::latent_config(arguments.model, arguments.batch, at::get_num_threads());
  const auto data = bench::latent_data(loaded.config, arguments.batch * (arguments.steps + 1));
  std::printf("%s, 4x32x32 latents, batch %lld, %s, %lld threads; %lld steps, milliseconds: median (range)\n",
              arguments.model.c_str(), static_cast<long long>(arguments.batch), device.str().c_str(),
              static_cast<long long>(*loaded.config.train.threads), static_cast<long long>(arguments.steps));
  SteadyClock clock;
  const std::string decision = decide_precision(loaded, device, clock, nullptr);
  if (!decision.empty()) std::printf("%s\n", decision.c_str());
  const char* const unit = arguments.bytes ? "bytes" : "MiB";
  std::printf(
      "\n| precision | attention | EMA | checkpoint | peak %s | saved %s | host %s | step ms | gradients |\n"
      "|---|---|---|---|---:|---:|---:|---:|---|\n",
      unit, unit, unit);
  Row none;
  for (int bits = 0; bits < 16; ++bits) {
    const Combination on{(bits & 8) != 0, (bits & 4) != 0, (bits & 2) != 0, (bits & 1) != 0};
    RunConfig config = loaded.config;
    config.policies = bench::options_of(on, loaded.config.policies);
    const Row row = measure(config, device, data, arguments.steps);
    if (bits == 0) none = row;
    print_row(on, row, none, device, arguments.bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("memory-policies",
                           "Peak, saved bytes, step time and gradients of all 16 combinations");
  options.add_options()("model", "published size", cxxopts::value<std::string>()->default_value("DiT-S/4"))(
      "batch", "samples of a step", cxxopts::value<int64_t>()->default_value("16"))(
      "steps", "timed steps of each combination", cxxopts::value<int64_t>()->default_value("5"))(
      "bytes", "print bytes instead of MiB")("device", "auto, cpu, cuda or cuda:i",
                                             cxxopts::value<std::string>()->default_value("auto"))(
      "help", "this text");
  try {
    const auto parsed = options.parse(argc, argv);
    if (parsed.count("help") > 0) {
      std::printf("%s", options.help().c_str());
      return 0;
    }
    run({parsed["model"].as<std::string>(), parsed["device"].as<std::string>(), parsed["batch"].as<int64_t>(),
         parsed["steps"].as<int64_t>(), parsed.count("bytes") > 0});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory-policies: %s\n", error.what());
    return 1;
  }
  return 0;
}
