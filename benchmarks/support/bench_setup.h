// What the benchmarks share: a model on made-up latents, and the two ends of every policy.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/data/synthetic_source.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/programs/process_settings.h"

namespace dtk::bench {

/// A published DiT on 4 x 32 x 32 latents, AdamW, no clipping, no sampling.
inline RunConfig latent_config(const std::string& model, int64_t batch, int64_t threads) {
  RunConfig config;
  const std::optional<models::DitPreset> preset = policies::parse_enum<models::DitPreset>(model);
  if (!preset)
    throw std::invalid_argument("--model " + model + ": one of " + policies::choices_of<models::DitPreset>());
  dit::options_of(config).model.name = *preset;
  dit::options_of(config).model.learn_sigma = false;  // rectified flow predicts no variance
  config.policies = dit::policy_defaults();
  config.train.threads = threads;
  config.train.steps = 1'000'000;
  config.data.batch = batch;
  config.schedule.kind = dtk::ScheduleKind::constant;
  return config;
}

/// As many blocks instead of the published number; the width and the rest stay.
inline void set_depth(models::DitOptions& model, int64_t depth) {
  const auto size = models::published_size(model.name);
  if (!size)
    throw std::invalid_argument("--depth: " + policies::text_of(model.name) + " is no published size");
  model.name = models::DitPreset::custom;
  model.depth = depth;
  model.hidden = size->hidden;
  model.heads = size->heads;
  model.patch = size->patch;
}

inline std::shared_ptr<const DataSource> latent_data(const RunConfig& config, int64_t samples) {
  const models::DitOptions& model = dit::options_of(config).model;
  return std::make_shared<SyntheticSource>(
      SyntheticSource::Shape{samples, model.channels, model.image_size, model.image_size, model.classes});
}

/// Which of the five policies are on; on means its default.
struct Combination {
  bool precision = false, attention = false, fusion = false, ema = false, checkpoint = false;
};

/// Off means fp32, materialised attention, operators one after the other, the EMA on the training device, no
/// recomputation.
inline policies::PolicyOptions options_of(const Combination& on,
                                          policies::PolicyOptions options = dit::policy_defaults()) {
  using policies::Enabled;
  const auto state = [](bool is_on) { return is_on ? Enabled::by_default : Enabled::off; };
  options.precision.enabled = state(on.precision);
  options.attention.enabled = state(on.attention);
  options.fusion.enabled = state(on.fusion);
  options.ema.device = on.ema ? policies::EmaDevice::cpu : policies::EmaDevice::same;
  options.checkpoint.enabled = state(on.checkpoint);
  return options;
}

/// --precision: what policies.precision takes on a CPU. Bytes are compared at one that is given, as what
/// trial steps find the faster depends on what else the machine does.
inline void add_precision(cxxopts::Options& options) {
  options.add_options()("precision", "on a CPU: probe, bf16 or fp32",
                        cxxopts::value<std::string>()->default_value("probe"));
}
inline policies::CpuPrecision precision_of(const cxxopts::ParseResult& parsed) {
  const auto text = parsed["precision"].as<std::string>();
  if (const auto precision = policies::parse_enum<policies::CpuPrecision>(text)) return *precision;
  throw std::invalid_argument("--precision " + text + ": allowed are probe, bf16 and fp32");
}

/// A benchmark's main(): sets the process up as dit-train does, parses, answers --help, and says what went
/// wrong, exit code 1.
template <class Run>
int main_of(const char* name, cxxopts::Options& options, int argc, char** argv, const Run& run) {
  apply_process_settings();
  options.add_options()("help", "this text");
  try {
    const auto parsed = options.parse(argc, argv);
    if (parsed.count("help") > 0) {
      std::printf("%s", options.help().c_str());
    } else {
      run(parsed);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
  return 0;
}

/// Middle of the sorted values; of an even number the upper middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

}  // namespace dtk::bench
