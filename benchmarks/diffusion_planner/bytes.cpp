// What the driving model keeps of a forward pass for its backward pass: bytes a sample by sub-module,
// planned by CUDA's rules and counted by the ledger on this CPU; and what choices of blocks to recompute
// leave.
#include <dtk/planner/simulate.h>
#include <dtk/policies/internal/counted_blocks.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cxxopts.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/bench_setup.h"
#include "support/diffusion_planner/job.h"
#include "support/diffusion_planner/preset.h"

namespace {

using namespace dtk;
using policies::Enabled;
using test::Bytes;
using test::DrivingJob;
using Paths = std::vector<std::string>;

/// "encoder.lane_encoder.blocks" of "encoder.lane_encoder.blocks.2.norm": all that is below a number is one.
std::string sub_module(const std::string& path) {
  for (size_t i = 1; i < path.size(); ++i) {
    if (path[i - 1] == '.' && std::isdigit(static_cast<unsigned char>(path[i])) != 0)
      return path.substr(0, i - 1);
  }
  return path;
}

Bytes by_sub_module(const Bytes& paths) {
  Bytes all;
  for (const auto& [path, bytes] : paths) all[sub_module(path)] += bytes;
  return all;
}

DrivingJob in_bf16(DrivingJob job) {
  job.policies.precision = {.enabled = Enabled::on, .fp32 = {}};  // of all of the model
  return job;
}

DrivingJob with_targets(DrivingJob job, const Paths& targets) {
  job.policies.checkpoint.enabled = targets.empty() ? Enabled::off : Enabled::on;
  job.policies.checkpoint.targets = targets;
  return job;
}

Bytes planned_on_cuda(const DrivingJob& job) {
  return test::planned_per_sample(job, c10::Device("cuda:0"));
}

Bytes counted_on_cpu(DrivingJob job) {
  const policies::CountingAllocatorGuard counting;
  job.batch = 3;
  Bytes more = test::kept_by_forward(job, at::kCPU);
  job.batch = 2;
  for (const auto& [path, bytes] : test::kept_by_forward(job, at::kCPU)) more[path] -= bytes;
  return more;
}

double megabytes(int64_t bytes) {
  return 1e-6 * static_cast<double>(bytes);
}

double percent(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void print_sub_modules(const std::array<Bytes, 4>& columns) {
  std::array<Bytes, 4> parts;
  std::array<int64_t, 4> sums{};
  for (size_t i = 0; i < columns.size(); ++i) {
    parts[i] = by_sub_module(columns[i]);
    sums[i] = test::sum(columns[i]);
  }
  Bytes names;  // of any column: a sub-module may keep something by one device's rules only
  for (const Bytes& part : parts) {
    for (const auto& [name, bytes] : part) names[name] += bytes == 0 ? 0 : parts[0][name];
  }
  std::vector<std::pair<int64_t, std::string>> ranked;
  for (const auto& [name, bytes] : names) ranked.emplace_back(-bytes, name);
  std::sort(ranked.begin(), ranked.end());
  std::printf("| sub-module | CUDA fp32 | share | CUDA bf16 | CPU fp32 | CPU bf16 |\n");
  std::printf("|---|---:|---:|---:|---:|---:|\n");
  const auto row = [&](const std::string& name, const std::array<int64_t, 4>& bytes) {
    std::printf("| %s | %.2f | %.1f %% | %.2f | %.2f | %.2f |\n", name.c_str(), megabytes(bytes[0]),
                percent(bytes[0], sums[0]), megabytes(bytes[1]), megabytes(bytes[2]), megabytes(bytes[3]));
  };
  for (const auto& [bytes, name] : ranked)
    row("`" + name + "`", {parts[0][name], parts[1][name], parts[2][name], parts[3][name]});
  row("all", sums);
}

void print_choice(const char* name, const DrivingJob& fp32, const DrivingJob& bf16, int64_t none) {
  const int64_t kept = test::sum(planned_on_cuda(fp32));
  const planner::Flops step = test::planned_training(fp32, c10::Device("cuda:0")).steady_step();
  const int64_t all = step.forward + step.backward + step.recomputed;
  std::printf("| %s | %.2f | %.1f %% | %.2f | %.2f | %.1f %% |\n", name, megabytes(kept),
              percent(none - kept, none), megabytes(test::sum(planned_on_cuda(bf16))),
              megabytes(test::sum(counted_on_cpu(fp32))), percent(step.recomputed, all));
  std::fflush(stdout);
}

void print_tables(const std::string& preset) {
  DrivingJob job;
  job.model = test::diffusion_planner_preset(preset);
  const Paths mixers = models::mixer_blocks(job.model), transformers = models::transformer_blocks(job.model);
  const std::array<Bytes, 4> columns = {planned_on_cuda(job), planned_on_cuda(in_bf16(job)),
                                        counted_on_cpu(job), counted_on_cpu(in_bf16(job))};
  std::printf("Preset %s, MB (1e6 bytes) a sample kept from forward to backward.\n\n", preset.c_str());
  print_sub_modules(columns);

  std::printf("\n| recomputed | CUDA fp32 | fewer | CUDA bf16 | CPU fp32 | of a step's operations |\n");
  std::printf("|---|---:|---:|---:|---:|---:|\n");
  const int64_t none = test::sum(columns[0]);
  const auto choice = [&](const char* name, const Paths& targets) {
    const DrivingJob chosen = with_targets(job, targets);
    print_choice(name, chosen, in_bf16(chosen), none);
  };
  choice("nothing", {});
  choice("transformer blocks (the published change)", transformers);
  choice("mixer blocks", mixers);
  choice("both, the default", models::checkpoint_targets(job.model));
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("diffusion-planner-bytes", "What the driving model keeps for its backward pass");
  options.add_options()("preset", policies::choices_of<models::DiffusionPlannerPreset>(),
                        cxxopts::value<std::string>()->default_value("H"));
  return bench::main_of(
      "diffusion-planner-bytes", options, argc, argv,
      [](const cxxopts::ParseResult& given) { print_tables(given["preset"].as<std::string>()); });
}
