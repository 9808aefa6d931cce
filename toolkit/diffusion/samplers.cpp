#include "toolkit/diffusion/samplers.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include <optional>
#include <stdexcept>

#include "toolkit/diffusion/diffusion_names.h"
#include "toolkit/diffusion/gaussian_diffusion.h"
#include "toolkit/diffusion/objective.h"
#include "toolkit/diffusion/respacing.h"

namespace dtk {
namespace {

class Flow : public Sampler {
 public:
  explicit Flow(int64_t steps) : steps_(steps) {}
  int64_t steps() const final { return steps_; }

 protected:
  double length() const { return 1.0 / static_cast<double>(steps_); }
  // At the beginning of step `index`, which is the end of the one before.
  at::Tensor velocity(int64_t index, const Denoiser& model, const at::Tensor& x, const at::Tensor& y) const {
    const double t = 1.0 - static_cast<double>(index) / static_cast<double>(steps_);
    return model(x, at::full({x.size(0)}, kFlowTimeScale * t, x.options()), y);
  }

 private:
  const int64_t steps_;
};

class Euler final : public Flow {
 public:
  using Flow::Flow;
  at::Tensor step(int64_t index, const Denoiser& model, at::Tensor x, const at::Tensor& y,
                  const DrawNoise&) const override {
    return at::sub(x, velocity(index, model, x, y), length());
  }
};

class Heun final : public Flow {
 public:
  using Flow::Flow;
  at::Tensor step(int64_t index, const Denoiser& model, at::Tensor x, const at::Tensor& y,
                  const DrawNoise&) const override {
    at::Tensor v = velocity(index, model, x, y);
    const at::Tensor end = at::sub(x, v, length());
    if (index + 1 == steps()) return end;
    v = v + velocity(index + 1, model, end, y);
    return at::sub(x, v, length() / 2);
  }
};

class GaussianSampler final : public Sampler {
 public:
  /// `eta`: DDIM's; absent: DDPM.
  GaussianSampler(GaussianDiffusion process, std::vector<int64_t> kept, std::optional<double> eta,
                  bool clip_x0)
      : process_(std::move(process)), kept_(std::move(kept)), eta_(eta), clip_x0_(clip_x0) {}

  int64_t steps() const override { return static_cast<int64_t>(kept_.size()); }

  at::Tensor step(int64_t index, const Denoiser& model, at::Tensor x, const at::Tensor& y,
                  const DrawNoise& noise) const override {
    const int64_t step = steps() - 1 - index;
    const at::Tensor original = at::full({x.size(0)}, kept_[static_cast<size_t>(step)], x.options());
    const at::Tensor output = model(x, original, y);
    const at::Tensor t = at::full({x.size(0)}, step, x.options().dtype(at::kLong));
    if (!eta_) return process_.ddpm_step(output, x, t, noise(), clip_x0_);
    return process_.ddim_step(output, x, t, *eta_, *eta_ > 0 ? noise() : at::Tensor(), clip_x0_);
  }

 private:
  const GaussianDiffusion process_;
  const std::vector<int64_t> kept_;  // original steps, ascending
  const std::optional<double> eta_;
  const bool clip_x0_;
};

}  // namespace

std::unique_ptr<const Sampler> make_sampler(const DiffusionOptions& diffusion, const SamplerOptions& options,
                                            int64_t steps, bool learn_sigma, c10::Device device) {
  if (options.sampler == SamplerKind::euler) return std::make_unique<Euler>(steps);
  if (options.sampler == SamplerKind::heun) return std::make_unique<Heun>(steps);
  std::vector<int64_t> kept =
      respaced_steps(options.respacing.value_or(std::to_string(steps)), diffusion.steps);
  const GaussianTables tables(diffusion_betas(diffusion.betas, diffusion.steps));
  const policies::OwnerScope owner(policies::Category::data, "sampler tables");
  GaussianDiffusion process(respaced(tables, kept), diffusion.objective, learn_sigma, device);
  const auto eta = options.sampler == SamplerKind::ddim ? std::optional(options.eta) : std::nullopt;
  return std::make_unique<GaussianSampler>(std::move(process), std::move(kept), eta, options.clip_x0);
}

}  // namespace dtk
