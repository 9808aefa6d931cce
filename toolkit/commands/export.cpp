#include "toolkit/commands/export.h"

#include "toolkit/checkpoint/adapters.h"
#include "toolkit/checkpoint/base.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/commands/sample.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/io/torch_file.h"
#include "toolkit/train/model_family.h"

namespace dtk {

ExportedWeights weights_to_export(FileSystem& files, const ExportArguments& arguments) {
  const std::filesystem::path folder = arguments.adapter;
  if (!arguments.adapter.empty() && !arguments.overwrite && files.exists(folder / kAdapterTensors)) {
    throw ConfigError("--adapter " + arguments.adapter +
                      ": there is an adapter in it; name another folder, or replace it with --overwrite");
  }
  if (files.exists(arguments.out) && !arguments.overwrite) {
    throw ConfigError("--out " + arguments.out +
                      ": there is such a file; name another one, or replace it with --overwrite");
  }
  const std::string key_place = arguments.raw ? "--raw" : "--key " + arguments.key;
  const SampleSource source = open_source(
      files,
      {arguments.checkpoint, arguments.key, "--checkpoint " + arguments.checkpoint, key_place, "--key"},
      arguments.config);
  const ModelFamily& family = family_of(source.config);
  ExportedWeights exported{source.weights.name, conversion_note(source.weights), {}};
  if (!arguments.adapter.empty()) {
    AdapterFiles adapter = family.adapter(source.weights, source.config);
    exported.tensors = std::move(adapter.tensors);
    exported.adapter_config = std::move(adapter.config);
    if (source.weights.base != nullptr)
      exported.adapter_base = base_text(base_of(files, *source.weights.base));
    return exported;
  }
  exported.tensors = family.to_export(source.weights, source.config, arguments.changes);
  if (const std::string lost = family.lost_by_export(source.config, arguments.changes); !lost.empty())
    exported.conversion += (exported.conversion.empty() ? "" : "\n") + lost;
  return exported;
}

void write_export(FileSystem& files, const ExportArguments& arguments, const ExportedWeights& weights) {
  const std::vector<NamedTensor>& tensors = weights.tensors;
  if (!arguments.adapter.empty()) {
    const std::filesystem::path folder = arguments.adapter;
    files.create_directories(folder);
    files.remove_all(folder / kBaseFile);  // an earlier export's names other weights
    write_file_atomically(files, folder / kAdapterTensors, [&](WritableFile& file) {
      write_safetensors(file, tensors, {{"format", "pt"}});
    });
    if (!weights.adapter_base.empty()) write_file_atomically(files, folder / kBaseFile, weights.adapter_base);
    return write_file_atomically(files, folder / kAdapterConfig, weights.adapter_config);
  }
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
