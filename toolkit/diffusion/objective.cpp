#include "toolkit/diffusion/objective.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/diffusion/gaussian_diffusion.h"

namespace dtk {
namespace {

class RectifiedFlow final : public Objective {
 public:
  explicit RectifiedFlow(FlowTime time) : time_(time) {}

  at::Tensor loss(const Denoiser& model, at::Tensor x0, at::Tensor y,
                  const at::Generator& generator) const override {
    const auto shape = x0.sizes();
    at::Tensor t = time_ == FlowTime::uniform ? at::rand({shape[0]}, generator, x0.options())
                                              : at::randn({shape[0]}, generator, x0.options()).sigmoid_();
    const at::Tensor noise = at::randn(shape, generator, x0.options());
    at::Tensor x = at::lerp(x0, noise, t.view({-1, 1, 1, 1}));  // x_t
    const at::Tensor velocity = noise - x0;
    x0.reset();
    t = t * kFlowTimeScale;
    const at::Tensor predicted = model(std::move(x), std::move(t), std::move(y));
    return at::mse_loss(predicted.to(at::kFloat), velocity);
  }

 private:
  const FlowTime time_;
};

class GaussianObjective final : public Objective {
 public:
  explicit GaussianObjective(GaussianDiffusion process) : process_(std::move(process)) {}

  at::Tensor loss(const Denoiser& model, at::Tensor x0, at::Tensor y,
                  const at::Generator& generator) const override {
    const auto index = x0.options().dtype(at::kLong);
    const at::Tensor t = at::randint(process_.steps(), {x0.size(0)}, generator, index);
    const at::Tensor noise = at::randn(x0.sizes(), generator, x0.options());
    const at::Tensor x_t = process_.q_sample(x0, t, noise);
    at::Tensor output = model(x_t, t.to(at::kFloat), std::move(y));
    output = output.to(at::kFloat);
    return process_.losses(output, x0, x_t, t, noise).total().mean();
  }

 private:
  const GaussianDiffusion process_;
};

}  // namespace

std::unique_ptr<const Objective> make_objective(const DiffusionOptions& options, bool learn_sigma,
                                                c10::Device device) {
  if (!is_gaussian(options.objective)) return std::make_unique<RectifiedFlow>(options.time);
  const policies::OwnerScope owner(policies::Category::parameters, "diffusion tables");
  return std::make_unique<GaussianObjective>(GaussianDiffusion(training_process(options.betas, options.steps),
                                                               options.objective, learn_sigma, device));
}

}  // namespace dtk
