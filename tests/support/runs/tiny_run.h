// A run small enough for a test: 4 classes of 8 x 8 images, a DiT of two blocks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/core/clock.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/families/dit/options.h"

namespace dtk::test {

/// Advances by `step` seconds each time it is asked.
class SteppingClock final : public dtk::Clock {
 public:
  explicit SteppingClock(double step = 0.0, bool waits_for_threads = false)
      : step_(step), waits_for_threads_(waits_for_threads) {}
  double seconds() override { return now_ += step_; }
  bool waits_for_threads() const override { return waits_for_threads_; }

 private:
  const double step_;
  const bool waits_for_threads_;
  double now_ = 0;
};

inline std::shared_ptr<const dtk::ImageSource> tiny_data(int64_t count = 64, int64_t channels = 1) {
  dtk::PixelData data;
  data.channels = channels;
  data.height = data.width = 8;
  data.classes = 4;
  data.description = std::to_string(count) + " made up";
  for (int64_t i = 0; i < count; ++i) {
    data.labels.push_back(i % 4);
    for (int64_t p = 0; p < channels * 64; ++p)
      data.pixels.push_back(static_cast<uint8_t>((i * 37 + p * (1 + i % 4) * 11) % 256));
  }
  return std::make_shared<dtk::PixelSource>(std::move(data));
}

/// Every kind of randomness is on: label drop, dropout, noise, shuffling, two micro-batches. Of the
/// objectives epsilon learns a variance.
inline dtk::RunConfig tiny_config(const std::string& name = "rectified_flow") {
  dtk::RunConfig config;
  const auto objective = policies::parse_enum<Prediction>(name).value();
  dit::options_of(config).diffusion.objective = objective;
  dit::options_of(config).sampler.sampler = dtk::samplers_for(objective).front();
  config.train.steps = 20;
  config.train.threads = 1;
  config.train.accumulate = 2;
  config.train.log_every = 5;
  config.data.batch = 8;
  dtk::models::DitOptions& model = dit::options_of(config).model;
  model.depth = 2;
  model.hidden = 16;
  model.heads = 2;
  model.patch = 4;
  model.image_size = 8;
  model.channels = 1;
  model.classes = 4;
  model.learn_sigma = objective == Prediction::epsilon;
  model.mlp_dropout = 0.1;
  config.optimizer.lr = 1e-2;
  config.schedule.warmup = 3;
  config.policies = dit::policy_defaults(config.policies);
  config.policies.ema.decay = 0.9;
  config.sample.steps = 2;
  dit::options_of(config).grid.per_class = 1;
  return config;
}

inline const std::vector<std::string> objectives = {"rectified_flow", "epsilon", "v", "x0"};

}  // namespace dtk::test
