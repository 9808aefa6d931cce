// The steps of dit-sample: where the weights come from, what is drawn, where it goes.
#pragma once
#include <c10/core/Device.h>

#include <map>
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/commands/arguments.h"
#include "toolkit/config/config.h"
#include "toolkit/diffusion/sampling.h"
#include "toolkit/io/file_system.h"

namespace dtk {

/// A trained model: its configuration, and its weights, which are still in their file.
struct SampleSource {
  RunConfig config;
  std::map<std::string, std::string> locations;  // LoadedConfig's
  Weights weights;
};

/// The weights that `request` asks for and the configuration of their model: `config_file`, by default the
/// one saved with a checkpoint or the config.toml beside a file. Throws ConfigError or FileError.
SampleSource open_source(FileSystem& files, const WeightsRequest& request, const std::string& config_file);

/// open_source() of --checkpoint (a checkpoint folder, or a run folder: its latest) or of --weights FILE.
SampleSource open_sample_source(FileSystem& files, const SampleArguments& arguments);

/// The run's [sample] options with what the command line says on top. Throws ConfigError.
SampleOptions sample_options(const RunConfig& config, const SampleArguments& arguments);

/// --per-class labels for each of --classes, class by class. Throws ConfigError for a class the model has
/// not.
std::vector<int64_t> sample_labels(const RunConfig& config, const SampleArguments& arguments);

/// Throws ConfigError if the folder of --out does not exist.
void check_out_folder(FileSystem& files, const std::string& out);

/// Throws ConfigError if --out cannot be written or not hold this model's samples: better said before they
/// are drawn.
void check_out(FileSystem& files, const SampleArguments& arguments, const RunConfig& config);

/// Samples (N, C, S, S) on the CPU, in [-1, 1] for image models; undefined if `keep_going` gave up. As many
/// at a time as the run's micro-batch, so that its own grid can be drawn again to the bit. Throws ConfigError
/// for a policy that the configuration asks for and that cannot act.
at::Tensor draw_samples(const SampleSource& source, const SampleOptions& options,
                        const std::vector<int64_t>& labels, c10::Device device,
                        const KeepGoing& keep_going = {});

/// Writes --out: a PNG grid with one row per class, a .safetensors file with "samples" (N, C, S, S) and
/// "labels" (N), or a .npy file of the samples. Throws FileError; the file then is what it was.
void write_samples(FileSystem& files, const SampleArguments& arguments, const at::Tensor& samples,
                   const std::vector<int64_t>& labels);

}  // namespace dtk
