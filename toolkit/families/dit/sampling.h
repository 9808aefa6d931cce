// Images from a DiT.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/models/dit.h>

#include <vector>

#include "toolkit/data/image.h"
#include "toolkit/diffusion/denoiser.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/families/dit/classes.h"
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

/// Rows of a run's sample grid: sample.classes, or the first 20 of the model's classes.
ClassChoice grid_classes(const RunConfig& config);

/// The label of each sample of that grid: sample.per_class of each class, class by class. `names`: of the
/// data's classes. Throws std::invalid_argument for a class that there is not.
std::vector<int64_t> grid_labels(const RunConfig& config, const std::vector<std::string>& names);

/// Samples as a picture, `per_class` a row, with the names of the rows' labels where there are names.
UnpaintedImage labelled_grid(const at::Tensor& samples, const std::vector<int64_t>& labels, int64_t per_class,
                             const std::vector<std::string>& class_names);

/// Latents of the model, which has seen them shifted and scaled, as the autoencoder gave them; images as they
/// are.
at::Tensor unscaled(const at::Tensor& samples, const ImageOptions& data);

/// Zeroes the rows (N, ...) of batches that are others'.
void zero_others(const at::Tensor& samples, int64_t batch, const RankShare& share);

/// Samples (N, C, S, S), fp32 on the CPU, one for each entry of `labels`, from a model trained as `diffusion`
/// says, with sampler, steps, guidance and seed of `options`. Runs at most `batch` samples at a time
/// (guidance doubles that inside), which does not change the result beyond rounding: noise is drawn on the
/// CPU, that of the start at once and that of each step from a stream of each sample's own. Runs without
/// gradients and touches no default generator. An undefined tensor if `keep_going` gave up. Of several ranks
/// each draws its batches; the rows of others' are zero. Throws std::invalid_argument for guidance that the
/// model cannot give, and for a sampler or steps that `diffusion` has not.
at::Tensor sample(const models::Dit& model, const DiffusionOptions& diffusion, const DrawOptions& options,
                  const std::vector<int64_t>& labels, int64_t batch, const KeepGoing& keep_going = {},
                  const RankShare& share = {});

}  // namespace dtk::dit
