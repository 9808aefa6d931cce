#include "toolkit/commands/export.h"

#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/commands/sample.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/io/torch_file.h"
#include "toolkit/train/model_family.h"

namespace dtk {
ExportedWeights weights_to_export(FileSystem& files, const ExportArguments& arguments) {
  if (files.exists(arguments.out) && !arguments.overwrite) {
    throw ConfigError("--out " + arguments.out +
                      ": there is such a file; name another one, or replace it with --overwrite");
  }
  const std::string key_place = arguments.raw ? "--raw" : "--key " + arguments.key;
  const SampleSource source = open_source(
      files,
      {arguments.checkpoint, arguments.key, "--checkpoint " + arguments.checkpoint, key_place, "--key"},
      arguments.config);
  return {source.weights.name, conversion_note(source.weights),
          family_of(source.config).to_export(source.weights, source.config)};
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
