// The steps of dit-sample: where the weights come from, what is drawn, where it goes.
#pragma once
#include <c10/core/Device.h>
#include <dtk/toolkit/command_line.h>
#include <dtk/toolkit/config.h>
#include <dtk/toolkit/file_system.h>
#include <dtk/toolkit/named_tensor.h>

#include <string>
#include <vector>

namespace dtk {

struct SampleSource {
  std::string name;  // for messages
  RunConfig config;
  std::vector<NamedTensor> weights;
  bool ema = false;  // the weights are averages
};

/// Reads configuration and weights: of --checkpoint (a checkpoint folder, or a run folder: its latest), or
/// of --weights FILE with --config FILE, by default the config.toml beside it. Throws ConfigError or
/// FileError.
SampleSource open_sample_source(FileSystem& files, const SampleArguments& arguments);

/// The run's [sample] options with what the command line says on top. Throws ConfigError.
SampleOptions sample_options(const RunConfig& config, const SampleArguments& arguments);

/// --per-class labels for each of --classes, class by class. Throws ConfigError for a class the model has not.
std::vector<int64_t> sample_labels(const RunConfig& config, const SampleArguments& arguments);

/// Samples (N, C, S, S) on the CPU, in [-1, 1] for image models.
at::Tensor draw_samples(const SampleSource& source, const SampleOptions& options, const std::vector<int64_t>& labels,
                        c10::Device device);

/// Writes --out: a PNG grid with one row per class, or a .safetensors file with "samples" (N, C, S, S) and
/// "labels" (N). Throws ConfigError for a grid of samples that are no images.
void write_samples(FileSystem& files, const SampleArguments& arguments, const at::Tensor& samples,
                   const std::vector<int64_t>& labels);

}  // namespace dtk
