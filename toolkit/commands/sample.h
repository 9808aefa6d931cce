// Where dit-sample and dit-export have their weights from.
#pragma once
#include <string>

#include "toolkit/commands/arguments.h"
#include "toolkit/train/drawing.h"

namespace dtk {

/// The weights that `request` asks for and the configuration of their model: `config_file`, by default the
/// one saved with a checkpoint or the config.toml beside a file. Throws ConfigError or FileError.
SampleSource open_source(FileSystem& files, const WeightsRequest& request, const std::string& config_file);

/// open_source() of --checkpoint (a checkpoint folder, or a run folder: its latest) or of --weights FILE.
SampleSource open_sample_source(FileSystem& files, const SampleArguments& arguments);

}  // namespace dtk
