#include "toolkit/diffusion/objective.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/diffusion/gaussian_diffusion.h"
#include "toolkit/diffusion/rectified_flow.h"

namespace dtk {
namespace {

class RectifiedFlow final : public Objective {
 public:
  explicit RectifiedFlow(FlowTime time) : time_(time) {}

  at::Tensor loss(const Denoiser& model, at::Tensor x0, at::Tensor y,
                  const at::Generator& generator) const override {
    return rectified_flow_loss(model, std::move(x0), std::move(y), time_, generator);
  }

 private:
  const FlowTime time_;
};

class Gaussian final : public Objective {
 public:
  explicit Gaussian(GaussianDiffusion process) : process_(std::move(process)) {}

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
  return std::make_unique<Gaussian>(GaussianDiffusion(training_process(options.betas, options.steps),
                                                      options.objective, learn_sigma, device));
}

}  // namespace dtk
