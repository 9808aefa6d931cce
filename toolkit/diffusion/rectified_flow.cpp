#include "toolkit/diffusion/rectified_flow.h"

#include <ATen/ATen.h>

namespace dtk {

at::Tensor rectified_flow_loss(const Denoiser& model, at::Tensor x0, at::Tensor y, FlowTime time,
                               const at::Generator& generator) {
  const auto shape = x0.sizes();
  at::Tensor t = time == FlowTime::uniform ? at::rand({shape[0]}, generator, x0.options())
                                           : at::randn({shape[0]}, generator, x0.options()).sigmoid_();
  const at::Tensor noise = at::randn(shape, generator, x0.options());
  at::Tensor x = at::lerp(x0, noise, t.view({-1, 1, 1, 1}));  // x_t
  const at::Tensor velocity = noise - x0;
  x0.reset();
  t = t * kFlowTimeScale;
  const at::Tensor predicted = model(std::move(x), std::move(t), std::move(y));
  return at::mse_loss(predicted.to(at::kFloat), velocity);
}

}  // namespace dtk
