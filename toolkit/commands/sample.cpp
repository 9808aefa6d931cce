#include "toolkit/commands/sample.h"

#include <dtk/policies/enum_text.h>

#include <array>

#include "toolkit/checkpoint/find.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/save_load.h"

namespace dtk {

// None where they cannot be read: numbers serve as well, and nobody may need any.
static std::vector<std::string> class_names_in(FileSystem& files,
                                               const std::filesystem::path& checkpoint) try {
  const std::filesystem::path file = checkpoint / data_file_name;
  if (!files.exists(file)) return {};
  return names_in(parse_identity(files.read(file, max_text_bytes), file.string()));
} catch (const FileError&) {
  return {};
}

/// What may stand in place of a path to weights.
enum class WeightsWord { random };
static constexpr auto enum_texts(WeightsWord) {
  return std::array{"random"};
}

static SampleSource random_source(FileSystem& files, const WeightsRequest& request,
                                  const std::string& config_file) {
  if (config_file.empty())
    throw ConfigError(request.path_place + ": which model shall draw them? Name it with --config FILE");
  LoadedConfig loaded = load_config(files, config_file, {});
  if (!family_of(loaded.config).infers())
    throw ConfigError(
        fmt::format("{}: no such file; models of train.model = \"{}\" are not drawn from with weights that "
                    "nobody trained",
                    request.path_place, loaded.config.train.model));
  SampleSource source;
  source.config = std::move(loaded.config);
  source.locations = std::move(loaded.locations);
  source.weights.name = "random weights";
  source.random = true;
  return source;
}

SampleSource open_source(FileSystem& files, const WeightsRequest& request, const std::string& config_file) {
  if (policies::parse_enum<WeightsWord>(request.path) && !files.exists(request.path))
    return random_source(files, request, config_file);
  WeightsRequest found = request;
  const auto checkpoint = checkpoint_in(files, request.path);
  if (checkpoint) found.path = checkpoint->string();
  SampleSource source;
  source.weights = open_weights(files, found);  // which compares all hashes of a checkpoint
  std::filesystem::path config = config_file;
  if (config.empty()) {
    config = (checkpoint ? *checkpoint : std::filesystem::path(request.path).parent_path()) / "config.toml";
    if (!checkpoint && !files.exists(config)) {
      throw ConfigError(request.path_place +
                        ": no config.toml beside it says which model this is; name one with --config FILE");
    }
  }
  LoadedConfig loaded = load_config(files, config, {});
  source.config = std::move(loaded.config);
  const std::filesystem::path weights = found.path;
  family_of(source.config)
      .take_files(files, files.is_folder(weights) ? weights : weights.parent_path(), !config_file.empty(),
                  source.config);
  if (checkpoint) source.class_names = class_names_in(files, *checkpoint);
  source.locations = std::move(loaded.locations);
  return source;
}

SampleSource open_sample_source(FileSystem& files, const SampleArguments& arguments) {
  if (arguments.checkpoint.empty()) {
    return open_source(files,
                       {arguments.weights, arguments.key, "--weights " + arguments.weights,
                        "--key " + arguments.key, "--key"},
                       arguments.config);
  }
  const auto folder = checkpoint_in(files, arguments.checkpoint);
  if (!folder) {
    throw ConfigError(
        fmt::format("--checkpoint {}: {}; name a checkpoint's folder, or a run folder to use its latest, or "
                    "a file with --weights",
                    arguments.checkpoint, why_no_checkpoint(files, arguments.checkpoint)));
  }
  return open_source(files,
                     {folder->string(), arguments.raw ? "model" : "", "--checkpoint " + arguments.checkpoint,
                      "--raw", "--raw"},
                     arguments.config);
}

}  // namespace dtk
