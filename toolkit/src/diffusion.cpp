#include <ATen/ATen.h>
#include <dtk/toolkit/diffusion.h>

namespace dtk {

at::Tensor rectified_flow_loss(const Denoiser& model, at::Tensor x0, at::Tensor y,
                               const DiffusionOptions& options, const at::Generator& generator) {
  const auto shape = x0.sizes();
  at::Tensor t = options.time == "uniform" ? at::rand({shape[0]}, generator, x0.options())
                                           : at::randn({shape[0]}, generator, x0.options()).sigmoid_();
  const at::Tensor noise = at::randn(shape, generator, x0.options());
  at::Tensor x = at::lerp(x0, noise, t.view({-1, 1, 1, 1}));  // x_t
  const at::Tensor target = noise - x0;                       // v
  x0.reset();
  t = t * 1000;
  const at::Tensor v = model(std::move(x), std::move(t), std::move(y));
  return at::mse_loss(v.to(at::kFloat), target);
}

at::Tensor euler_sample(const Denoiser& model, at::Tensor noise, const at::Tensor& y, int64_t steps,
                        const std::function<bool(int64_t done)>& go_on) {
  at::Tensor x = std::move(noise);
  for (int64_t i = 0; i < steps; ++i) {
    if (go_on && !go_on(i)) return {};
    const double t = 1.0 - static_cast<double>(i) / static_cast<double>(steps);
    const at::Tensor v = model(x, at::full({x.size(0)}, 1000.0 * t, x.options()), y);
    x = at::sub(x, v, 1.0 / static_cast<double>(steps));
  }
  return x;
}

}  // namespace dtk
