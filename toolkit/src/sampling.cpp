#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/toolkit/diffusion.h>
#include <dtk/toolkit/sampling.h>
#include <dtk/toolkit/streams.h>

#include <algorithm>

namespace dtk {

int64_t grid_classes(const RunConfig& config) {
  constexpr int64_t most = 20;  // of a thousand classes nobody wants a grid
  return config.sample.classes.value_or(std::min(most, config.model.classes));
}

at::Tensor sample(const models::Dit& model, const SampleOptions& options, const std::vector<int64_t>& labels,
                  int64_t batch, const GoOn& go_on) {
  at::NoGradGuard no_grad;
  const models::DitOptions& shape = model.options();
  const auto count = static_cast<int64_t>(labels.size());
  const c10::Device device = model.parameters().front().second.device();
  const at::Generator generator = policies::make_generator(at::kCPU, stream_seed(options.seed, "sample"));
  const at::Tensor noise =
      at::randn({count, shape.channels, shape.image_size, shape.image_size}, generator, at::kFloat);
  const at::Tensor y = at::tensor(labels, at::kLong);
  const Denoiser denoiser = [&](at::Tensor x, at::Tensor t, at::Tensor label) {
    if (options.guidance != 1.0) {
      return model.forward_guided(x, t, label, options.guidance, options.cfg_channels);
    }
    at::Tensor out = model.forward(std::move(x), std::move(t), std::move(label), /*training=*/false);
    return out.narrow(1, 0, shape.channels);
  };
  at::Tensor samples = at::empty_like(noise);
  const int64_t all_steps = (count + batch - 1) / batch * options.steps;
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t length = std::min(batch, count - first);
    const int64_t before = first / batch * options.steps;
    const auto each_step = [&](int64_t done) { return !go_on || go_on(before + done, all_steps); };
    const at::Tensor x = euler_sample(denoiser, noise.narrow(0, first, length).to(device),
                                      y.narrow(0, first, length).to(device), options.steps, each_step);
    if (!x.defined()) return {};
    samples.narrow(0, first, length).copy_(x);
  }
  return samples;
}

}  // namespace dtk
