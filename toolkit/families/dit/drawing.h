// Images or latents that a trained DiT draws, and where they go.
#pragma once
#include <memory>

#include "toolkit/train/drawing.h"

namespace dtk::dit {

SampleUsage image_usage();

/// --per-class samples of each of --classes, class by class, drawn as the run's [sample] options and the
/// command line on top say: "samples" (N, C, S, S), in [-1, 1] for image models. As many at a time as the
/// run's micro-batch, so that its own grid can be drawn again to the bit. --out is a PNG grid with one row
/// per class, a .safetensors file with "samples" and "labels" (N), or a .npy file of the samples. Throws
/// ConfigError for what cannot be drawn or written.
std::unique_ptr<Drawing> draw_images(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments);

}  // namespace dtk::dit
