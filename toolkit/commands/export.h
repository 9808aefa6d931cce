// The steps of dit-export: a model's weights as other programs read them.
#pragma once
#include <string>
#include <vector>

#include "toolkit/commands/arguments.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

struct ExportedWeights {
  std::string name;                  // for messages: "the EMA weights of runs/mine/checkpoints/step-00001000"
  std::string conversion;            // conversion_note(), and what is lost on the way
  std::vector<NamedTensor> tensors;  // on the CPU, as ModelFamily::to_export() says
  std::string adapter_config = {};   // with --adapter
  std::string adapter_base =
      {};  // with it, base.json of what they lie beside; "": the run has none of a file
};

/// Reads the weights that --checkpoint, --key and --raw name, checked against their model. pos_embed is there
/// also where the source has it not: it is fixed. Throws ConfigError or FileError.
ExportedWeights weights_to_export(FileSystem& files, const ExportArguments& arguments);

/// Writes --out, a safetensors file or one of torch.save, or the two files of --adapter. Throws ConfigError
/// for a folder that does not exist, FileError; the file then is what it was.
void write_export(FileSystem& files, const ExportArguments& arguments, const ExportedWeights& weights);

}  // namespace dtk
