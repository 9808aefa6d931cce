// Images or latents that a trained DiT draws, and where they go.
#pragma once
#include <memory>
#include <vector>

#include "toolkit/families/dit/sampling.h"
#include "toolkit/train/drawing.h"

namespace dtk::dit {

SampleUsage image_usage();

/// The run's [sample] options with what the command line says on top. Throws ConfigError.
DrawOptions asked_options(const RunConfig& config, const SampleArguments& arguments);

/// --per-class labels for each of --classes, class by class. Throws ConfigError for a class the model has
/// not.
std::vector<int64_t> sample_labels(const RunConfig& config, const SampleArguments& arguments);

/// Throws ConfigError if --out cannot be written or not hold this model's samples: better said before they
/// are drawn.
void check_out(FileSystem& files, const SampleArguments& arguments, const RunConfig& config);

/// Samples (N, C, S, S) on the CPU, in [-1, 1] for image models; undefined if `keep_going` gave up. As many
/// at a time as the run's micro-batch, so that its own grid can be drawn again to the bit. Throws ConfigError
/// for a policy that the configuration asks for and that cannot act.
at::Tensor draw_samples(const SampleSource& source, const DrawOptions& options,
                        const std::vector<int64_t>& labels, c10::Device device,
                        const KeepGoing& keep_going = {});

/// Writes --out: a PNG grid with one row per class, a .safetensors file with "samples" (N, C, S, S) and
/// "labels" (N), or a .npy file of the samples. Throws FileError; the file then is what it was.
void write_samples(FileSystem& files, const SampleArguments& arguments, const at::Tensor& samples,
                   const std::vector<int64_t>& labels);

/// All of it. Throws ConfigError for what cannot be drawn or written.
std::unique_ptr<Drawing> draw_images(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments);

}  // namespace dtk::dit
