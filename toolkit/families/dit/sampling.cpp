#include "toolkit/families/dit/sampling.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/simulation.h>

#include <algorithm>

#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/diffusion/samplers.h"

namespace dtk::dit {
namespace {

// A stream for each sample: what one is given depends neither on how many are drawn at a time nor on how many
// there are, and only one step's noise is ever held.
class StepNoise {
 public:
  StepNoise(int64_t seed, int64_t first, int64_t count) {
    const uint64_t key = stream_seed(seed, "sample steps");
    for (int64_t i = first; i < first + count; ++i) {
      streams_.push_back(policies::make_generator(at::kCPU, draw64(key, static_cast<uint64_t>(i))));
    }
  }

  // The next step's, for samples of the shape and on the device of `like`.
  at::Tensor draw(const at::Tensor& like) {
    const at::Tensor noise = at::empty(like.sizes(), at::kFloat);
    for (size_t i = 0; i < streams_.size(); ++i)
      noise[static_cast<int64_t>(i)].normal_(0.0, 1.0, streams_[i]);
    return noise.to(like.device());
  }

 private:
  std::vector<at::Generator> streams_;
};

}  // namespace

DrawOptions draw_options(const RunConfig& config) {
  const Options& options = options_of(config);
  return {options.sampler, config.sample.steps, options.grid};
}

ClassChoice grid_classes(const RunConfig& config) {
  constexpr int64_t most = 20;  // of a thousand classes nobody wants a grid
  const int64_t classes = options_of(config).model.classes;
  const auto& asked = options_of(config).grid.classes;
  return asked ? ClassChoice(*asked, classes) : ClassChoice(std::min(most, classes));
}

std::vector<int64_t> grid_labels(const RunConfig& config, const std::vector<std::string>& names) {
  const ClassChoice classes = grid_classes(config);
  const auto per_class = static_cast<size_t>(options_of(config).grid.per_class);
  // A plan knows no names, and no label's value counts in it.
  if (policies::simulating()) return std::vector<int64_t>(static_cast<size_t>(classes.count()) * per_class);
  std::vector<int64_t> labels;
  for (const int64_t label : classes.labels(names)) labels.insert(labels.end(), per_class, label);
  return labels;
}

UnpaintedImage labelled_grid(const at::Tensor& samples, const std::vector<int64_t>& labels, int64_t per_class,
                             const std::vector<std::string>& class_names) {
  std::vector<std::string> names;
  for (size_t i = 0; !class_names.empty() && i < labels.size(); i += static_cast<size_t>(per_class)) {
    const auto label = static_cast<size_t>(labels[i]);
    names.push_back(label < class_names.size() ? class_names[label] : std::to_string(label));
  }
  return image_grid(samples, per_class, /*padding=*/2, /*scale=*/2, names);
}

at::Tensor unscaled(const at::Tensor& samples, const ImageOptions& data) {
  if (data.latent_scale == 1.0 && data.latent_shift == 0.0) return samples;
  return samples / data.latent_scale + data.latent_shift;
}

void zero_others(const at::Tensor& samples, int64_t batch, const RankShare& share) {
  const int64_t count = samples.size(0);
  for (int64_t first = 0; first < count; first += batch) {
    if (first / batch % share.ranks != share.rank)
      samples.narrow(0, first, std::min(batch, count - first)).zero_();
  }
}

at::Tensor sample(const models::Dit& model, const DiffusionOptions& diffusion, const DrawOptions& options,
                  const std::vector<int64_t>& labels, int64_t batch, const KeepGoing& keep_going,
                  const RankShare& share) {
  at::NoGradGuard no_grad;
  const models::DitOptions& shape = model.options();
  const auto count = static_cast<int64_t>(labels.size());
  const c10::Device device = model.parameters().front().second.device();
  const auto sampler = make_sampler(diffusion, options.sampler, options.steps, shape.learn_sigma, device);
  const at::Generator generator =
      policies::make_generator(at::kCPU, stream_seed(options.grid.seed, "sample"));
  const at::Tensor start =
      at::randn({count, shape.channels, shape.image_size, shape.image_size}, generator, at::kFloat);
  const at::Tensor y = at::tensor(labels, at::kLong);
  const Denoiser denoiser = [&](at::Tensor x, at::Tensor t, at::Tensor label) {
    if (options.grid.guidance != 1.0) {
      return model.forward_guided(x, t, label, options.grid.guidance, options.grid.cfg_channels);
    }
    return model.forward(std::move(x), std::move(t), std::move(label), /*training=*/false);
  };
  at::Tensor samples = share.ranks > 1 ? at::zeros_like(start) : at::empty_like(start);
  const int64_t batches = (count + batch - 1) / batch, rounds = share.rounds(batches);
  const int64_t all_steps = rounds * sampler->steps();
  policies::FoldableLoop passes("batches of samples", rounds);
  while (const auto round = passes.next()) {
    const RankShare::Turn turn = share.turn(*round, batches);
    const int64_t first = turn.batch * batch;
    const int64_t length = std::min(batch, count - first);
    at::Tensor x = start.narrow(0, first, length).to(device);
    const at::Tensor label = y.narrow(0, first, length).to(device);
    StepNoise noise(options.grid.seed, first, length);
    policies::FoldableLoop steps("sampler steps", sampler->steps());
    while (const auto step = steps.next()) {
      if (keep_going && !keep_going(*round * sampler->steps() + *step, all_steps)) return {};
      x = sampler->step(*step, denoiser, x, label, [&] { return noise.draw(x); });
    }
    const policies::HostCopyScope copy;
    if (turn.is_own) samples.narrow(0, first, length).copy_(x);
  }
  policies::zero_if_simulating(samples);
  return samples;
}

}  // namespace dtk::dit
