// Latents that an autoencoder made beforehand, read from their file as the training asks for them.
#pragma once
#include <filesystem>
#include <memory>

#include "toolkit/data/image_source.h"

namespace dtk {

struct LatentFiles {
  std::filesystem::path latents;  // .npy, or .safetensors with the tensor "latents"
  std::filesystem::path labels;   // .npy; empty: the tensor "labels" of the .safetensors file
  double scale = 1.0;             // values are multiplied by it
  double shift = 0.0;             // after this was taken off them
};

/// Latents (N, C, H, W), float32, float16 or bfloat16 (the last in .safetensors only), with int64 labels (N).
/// The file of latents is read a sample at a time, never as a whole; labels take 8 bytes a sample of
/// memory. read_image(), which several threads may call, converts to float32, shifts and scales, and
/// throws DataError naming file and sample if a value is not finite: no NaN is ever trained on, and starting
/// costs no pass over the file. classes() is the largest label + 1.
///
/// Throws DataError naming the file: for a damaged or hostile header (npy.h, safetensors.h), another dtype or
/// number of dimensions, no samples, labels that are negative or not as many as latents, labels in two
/// places.
std::unique_ptr<ImageSource> open_latents(const LatentFiles& files);

}  // namespace dtk
