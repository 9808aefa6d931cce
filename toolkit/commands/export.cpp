#include "toolkit/commands/export.h"

#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/commands/sample.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/weights.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/io/torch_file.h"

namespace dtk {
namespace {

// Every parameter that is missing here is one that weights may leave out.
at::Tensor fixed_parameter(const std::string& name, const models::DitOptions& options) {
  if (name != "pos_embed") throw FileError("no weights for " + name);
  return models::position_table(*options.hidden, options.image_size / *options.patch);
}

}  // namespace

ExportedWeights weights_to_export(FileSystem& files, const ExportArguments& arguments) {
  const std::string key_place = arguments.raw ? "--raw" : "--key " + arguments.key;
  const SampleSource source = open_source(
      files,
      {arguments.checkpoint, arguments.key, "--checkpoint " + arguments.checkpoint, key_place, "--key"},
      arguments.config);
  if (source.config.drives()) {
    const models::DiffusionPlanner planner(source.config.diffusion_planner, at::kMeta);
    return {source.weights.name, conversion_note(source.weights), weights_to_export(source.weights, planner)};
  }
  const models::Dit model(source.config.model, at::kMeta);  // names and shapes only
  check_fit(source.weights, model);
  const auto fixed = [&](const std::string& name) { return fixed_parameter(name, model.options()); };
  return {source.weights.name, conversion_note(source.weights),
          in_order(source.weights, model.parameters(), fixed)};
}

void write_export(FileSystem& files, const ExportArguments& arguments,
                  const std::vector<NamedTensor>& tensors) {
  check_out_folder(files, arguments.out);
  const std::filesystem::path out = arguments.out;
  write_file_atomically(files, out, [&](WritableFile& file) {
    if (out.extension() == ".pt") {
      write_torch_file(file, tensors);
    } else {
      write_safetensors(file, tensors, {{"format", "pt"}});
    }
  });
}

}  // namespace dtk
