#include "toolkit/diffusion/objective.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include <vector>

#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/diffusion/gaussian_diffusion.h"

namespace dtk {
namespace {

// What `draw` gives for the `samples` of x0: of a part those that its whole would get, if each part draws
// from the same state of the generator.
template <class Draw>
at::Tensor drawn_for(const std::optional<BatchPart>& part, int64_t samples, const Draw& draw) {
  return part ? draw(part->of).narrow(0, part->first, samples) : draw(samples);
}

// (N, C, S, S), as x0.
at::Tensor noise_like(const at::Tensor& x0, const at::Generator& generator,
                      const std::optional<BatchPart>& part) {
  return drawn_for(part, x0.size(0), [&](int64_t n) {
    std::vector<int64_t> shape = x0.sizes().vec();
    shape[0] = n;
    return at::randn(shape, generator, x0.options());
  });
}

class RectifiedFlow final : public Objective {
 public:
  explicit RectifiedFlow(FlowTime time) : time_(time) {}

  at::Tensor loss(const Denoiser& model, at::Tensor x0, at::Tensor y, const at::Generator& generator,
                  const std::optional<BatchPart>& part) const override {
    at::Tensor t = drawn_for(part, x0.size(0), [&](int64_t n) {
      return time_ == FlowTime::uniform ? at::rand({n}, generator, x0.options())
                                        : at::randn({n}, generator, x0.options()).sigmoid_();
    });
    const at::Tensor noise = noise_like(x0, generator, part);
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

  at::Tensor loss(const Denoiser& model, at::Tensor x0, at::Tensor y, const at::Generator& generator,
                  const std::optional<BatchPart>& part) const override {
    const auto index = x0.options().dtype(at::kLong);
    const at::Tensor t = drawn_for(
        part, x0.size(0), [&](int64_t n) { return at::randint(process_.steps(), {n}, generator, index); });
    const at::Tensor noise = noise_like(x0, generator, part);
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
