// Images from a DiT.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/models/dit.h>

#include <vector>

#include "toolkit/diffusion/denoiser.h"
#include "toolkit/families/dit/options.h"

namespace dtk::dit {

/// How samples are drawn.
struct DrawOptions {
  SamplerOptions sampler;
  int64_t steps = 25;  // of the sampler
  GridOptions grid;
};
/// As [sample] says.
DrawOptions draw_options(const RunConfig& config);

/// Rows of a run's sample grid: sample.classes, or all of the model's classes up to 20.
int64_t grid_classes(const RunConfig& config);

/// The label of each sample of that grid: sample.per_class of each class, class by class.
std::vector<int64_t> grid_labels(const RunConfig& config);

/// Samples (N, C, S, S), fp32 on the CPU, one for each entry of `labels`, from a model trained as `diffusion`
/// says, with sampler, steps, guidance and seed of `options`. Runs at most `batch` samples at a time
/// (guidance doubles that inside), which does not change the result beyond rounding: noise is drawn on the
/// CPU, that of the start at once and that of each step from a stream of each sample's own. Runs without
/// gradients and touches no default generator. An undefined tensor if `keep_going` gave up. Throws
/// std::invalid_argument for guidance that the model cannot give, and for a sampler or steps that `diffusion`
/// has not.
at::Tensor sample(const models::Dit& model, const DiffusionOptions& diffusion, const DrawOptions& options,
                  const std::vector<int64_t>& labels, int64_t batch, const KeepGoing& keep_going = {});

}  // namespace dtk::dit
