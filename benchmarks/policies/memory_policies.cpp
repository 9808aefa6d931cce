// The table of all thirty-two combinations of the five policies: one model, one batch, peak, saved bytes,
// step time and how the gradients compare with those of the run without any.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/saved_tensors.h>

#include <bit>
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "support/bench_setup.h"
#include "support/policies/compared_gradients.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/device/device.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/json.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/train/precision_choice.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;
using bench::Combination;

struct Arguments {
  std::string model, device;
  policies::CpuPrecision precision = {};
  int64_t batch, steps, depth;
  bool bytes;           // print plain bytes, for programs
  std::string reports;  // folder for each combination's memory.json; "": none
};

using bench::compared;
using bench::Gradients;  // of the first step

struct Row {
  MemoryReport report;
  int64_t saved = 0;  // bytes
  std::vector<double> milliseconds;
  Gradients gradients;
  policies::PolicyReport ema;  // after the last step
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

// Bytes that autograd keeps from a forward pass for its backward pass: what is alive at the forward pass's
// end. The sums at the forward phase's peak would be of an earlier moment, where an operator's temporaries
// stood highest.
class SavedMeter final : public policies::PhaseMeter {
 public:
  std::string enter_phase(std::string_view name) override {
    if (phase_ == "forward") bytes_ = policies::cpu_accounts().live().of(policies::Category::saved);
    return std::exchange(phase_, name);
  }
  std::vector<policies::PhasePeak> phases() const override { return {}; }
  int64_t bytes() const { return bytes_; }

 private:
  std::string phase_;
  int64_t bytes_ = 0;  // of the last forward pass that ended
};

// Outside of LibTorch's memory, which is being measured.
Gradients copied_gradients(const Trainer& trainer) {
  Gradients all;
  for (const auto& [name, parameter] : trainer.model().parameters()) {
    if (!parameter.grad().defined()) continue;
    const at::Tensor gradient = parameter.grad().to(at::kCPU).contiguous();
    const float* values = gradient.const_data_ptr<float>();
    all.emplace_back(values, values + gradient.numel());
  }
  return all;
}

Gradients gradients_of(const RunConfig& config, c10::Device device,
                       const std::shared_ptr<const DataSource>& data) {
  SteadyClock clock;
  Trainer trainer(config, device, data, clock);
  randomise(trainer, device);
  trainer.accumulate_gradients();
  return copied_gradients(trainer);
}

Row measure(const RunConfig& config, c10::Device device, const std::shared_ptr<const DataSource>& data,
            int64_t steps) {
  Row row;
  row.gradients = gradients_of(config, device, data);
  SteadyClock clock;
  const MemoryMeters meters(config.memory, device);
  SavedMeter saved;
  const policies::PhaseMeterRegistration registration(saved);
  Trainer trainer(config, device, data, clock);
  randomise(trainer, device);
  for (int64_t step = 0; step <= steps; ++step) {
    synchronize(device);
    const double begin = clock.seconds();
    trainer.step();
    synchronize(device);
    if (step > 0) row.milliseconds.push_back(1000 * (clock.seconds() - begin));  // the first warms up
  }
  row.report = *meters.report();
  row.saved = saved.bytes();
  for (const policies::PolicyReport& policy : trainer.policies().reports()) {
    if (policy.policy == "ema") row.ema = policy;
  }
  return row;
}

// Of all bits of the gradients, for programs that compare rows with each other (FNV-1a).
std::string digest(const Gradients& gradients) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::vector<float>& values : gradients) {
    for (const float value : values) hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3u;
  }
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string size_text(int64_t bytes, bool plain) {
  if (plain) return std::to_string(bytes);
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / 1048576);
  return text;
}

void print_row(const Combination& on, const Row& row, const Gradients& reference, c10::Device device,
               bool plain) {
  const auto word = [](bool is_on) { return is_on ? "on" : "-"; };
  const auto [min, max] = std::minmax_element(row.milliseconds.begin(), row.milliseconds.end());
  const policies::PhasePeak peak = row.report.peak();
  // A device's allocator knows no owners.
  const std::string saved = device.is_cpu() ? size_text(row.saved, plain) : "not measured";
  std::printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %.0f (%.0f-%.0f) | %s |", word(on.precision),
              word(on.attention), word(on.fusion), word(on.ema), word(on.checkpoint),
              size_text(peak.peak.bytes, plain).c_str(), peak.name.c_str(), saved.c_str(),
              size_text(row.report.host.peak.bytes, plain).c_str(), bench::median(row.milliseconds), *min,
              *max, compared(row.gradients, reference).c_str());
  if (plain) std::printf(" %s |", digest(row.gradients).c_str());
  std::printf("\n");
  std::fflush(stdout);
}

// As memory.json; "10111.json" has all but attention on.
void write_report(const std::filesystem::path& folder, const Combination& on, const Row& row) {
  std::filesystem::create_directories(folder);
  std::string name;
  for (const bool is_on : {on.precision, on.attention, on.fusion, on.ema, on.checkpoint})
    name += is_on ? '1' : '0';
  const std::filesystem::path file = folder / (name + ".json");
  std::ofstream out(file);
  out << json_text(memory_json(row.report));
  if (!out.flush()) throw std::runtime_error(file.string() + ": cannot be written");
}

// What moving the average brought: on a device the times that the policy reports.
std::string ema_text(const policies::PolicyReport& ema, c10::Device device) {
  const std::string bytes = std::to_string(ema.saved_bytes.value_or(0)) + " B";
  if (device.is_cpu()) return "EMA: nothing to move on the CPU: " + bytes;
  return "EMA: " + bytes + " moved off " + device.str() + "; with all policies: " + ema.reason;
}

void run(const Arguments& arguments) {
  const c10::Device device = open_device(arguments.device);
  const policies::SavedTensorEngineGuard engine;
  LoadedConfig loaded;
  loaded.config = bench::latent_config(arguments.model, arguments.batch, at::get_num_threads());
  loaded.config.policies.precision.cpu = arguments.precision;
  if (arguments.depth > 0) bench::set_depth(dit::options_of(loaded.config).model, arguments.depth);
  const auto data = bench::latent_data(loaded.config, arguments.batch * (arguments.steps + 1));
  const std::string depth =
      arguments.depth > 0 ? " of " + std::to_string(arguments.depth) + " blocks" : std::string();
  std::printf(
      "%s%s, 4x32x32 latents, batch %lld, %s, %lld threads; %lld steps, milliseconds: median (range)\n",
      arguments.model.c_str(), depth.c_str(), static_cast<long long>(arguments.batch), device.str().c_str(),
      static_cast<long long>(*loaded.config.train.threads), static_cast<long long>(arguments.steps));
  SteadyClock clock;
  const std::string decision = decide_precision(loaded, device, clock, nullptr);
  if (!decision.empty()) std::printf("%s\n", decision.c_str());
  if (!device.is_cpu()) {
    // cuDNN's kernel for a convolution's gradient may sum in any order. And the first step of each kind on a
    // thread takes workspaces, which would be in one row and not in the next.
    at::globalContext().setDeterministicCuDNN(true);
    gradients_of(loaded.config, device, data);
  }
  RunConfig none = loaded.config;
  none.policies = bench::options_of({}, none.policies);
  const Gradients reference = gradients_of(none, device, data);
  int64_t parameters = 0;
  for (const std::vector<float>& gradient : reference) parameters += static_cast<int64_t>(gradient.size());
  std::printf("%lld trainable parameters in %zu tensors\n", static_cast<long long>(parameters),
              reference.size());
  std::printf(
      "gradients: against a run of its own without policies, bit for bit; relative error: of a tensor, in L2 "
      "norm\n");
  const char* const unit = arguments.bytes ? "bytes" : "MiB";
  std::printf(
      "\n| precision | attention | fusion | EMA | checkpoint | peak %s | phase | saved %s | host %s | step "
      "ms | "
      "gradients |%s\n|---|---|---|---|---|---:|---|---:|---:|---:|---|%s\n",
      unit, unit, unit, arguments.bytes ? " bits |" : "", arguments.bytes ? "---|" : "");
  policies::PolicyReport ema;
  for (int bits = 0; bits < 32; ++bits) {
    const Combination on{(bits & 16) != 0, (bits & 8) != 0, (bits & 4) != 0, (bits & 2) != 0,
                         (bits & 1) != 0};
    RunConfig config = loaded.config;
    config.policies = bench::options_of(on, loaded.config.policies);
    const Row row = measure(config, device, data, arguments.steps);
    print_row(on, row, reference, device, arguments.bytes);
    if (!arguments.reports.empty()) write_report(arguments.reports, on, row);
    if (on.ema) ema = row.ema;
  }
  std::printf("\n%s\n", ema_text(ema, device).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("memory-policies",
                           "Peak, saved bytes, step time and gradients of all 32 combinations");
  options.add_options()("model", "published size", cxxopts::value<std::string>()->default_value("DiT-S/4"))(
      "batch", "samples of a step", cxxopts::value<int64_t>()->default_value("16"))(
      "steps", "timed steps of each combination", cxxopts::value<int64_t>()->default_value("5"))(
      "depth", "blocks; 0: the published number", cxxopts::value<int64_t>()->default_value("0"))(
      "bytes", "print bytes instead of MiB, and a digest of the gradients' bits")(
      "device", "auto, cpu, cuda or cuda:i", cxxopts::value<std::string>()->default_value("auto"))(
      "reports", "folder for each combination's memory.json, named by its switches: 10111.json",
      cxxopts::value<std::string>()->default_value(""));
  bench::add_precision(options);
  return bench::main_of("memory-policies", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    run({parsed["model"].as<std::string>(), parsed["device"].as<std::string>(), bench::precision_of(parsed),
         parsed["batch"].as<int64_t>(), parsed["steps"].as<int64_t>(), parsed["depth"].as<int64_t>(),
         parsed.count("bytes") > 0, parsed["reports"].as<std::string>()});
  });
}
