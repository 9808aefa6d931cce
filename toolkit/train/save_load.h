// What a checkpoint of a training run holds: model.safetensors, optimizer.safetensors, one
// <policy>.safetensors per policy with tensors, each cut into several where it is large (store.h),
// state.json (step, samples, seconds, threads, counters), config.toml, origins.json (LoadedConfig::origins),
// data.json, base.json (where frozen weights are, which model.safetensors then has not), history.json
// (LoadedConfig::history, where there is one) and what TrainableModel::files() gives.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "toolkit/checkpoint/store.h"
#include "toolkit/config/config_io.h"
#include "toolkit/train/trainer.h"

namespace dtk {

/// Writes one and returns its folder. `loaded`: of the run. Throws FileError; the previous checkpoint is then
/// still whole.
std::filesystem::path save_training(CheckpointStore& store, const Trainer& trainer,
                                    const LoadedConfig& loaded, int threads, const DataIdentity& data = {});

/// What the data of a run are known by, in its folder and in its checkpoints.
inline constexpr char data_file_name[] = "data.json";
/// Of a checkpoint; absent in one of an earlier version. Throws FileError.
std::optional<DataIdentity> written_data(const Checkpoint& checkpoint);

/// The configuration of the run that wrote the checkpoint. One that was written before there was origins.json
/// has lines of its config.toml as origins. Throws as parse_config(), and FileError.
LoadedConfig written_config(const Checkpoint& checkpoint);

/// The configuration that a checkpoint's folder holds, with `overrides` as load_config() takes them: of a run
/// that goes on where it is, or in train.out of the overrides. What once allowed a change is not kept. The
/// checkpoint is not opened: whoever resumes it compares its hashes. Throws as load_config().
LoadedConfig resumed_config(FileSystem& files, const std::filesystem::path& checkpoint,
                            const std::vector<std::string>& overrides);

/// CPU threads of the run that wrote the checkpoint.
int threads_of(const Checkpoint& checkpoint);

/// Puts the checkpoint's weights, moments, averages and position into `trainer`, one tensor at a
/// time: it takes no more memory than the run that wrote it. Throws FileError
/// or PolicyError for parts that are missing or do not fit, ConfigError where a file of the model's
/// (TrainableModel::files()) differs. A policy that was off when the checkpoint was
/// made begins anew if it needs no state.
void load_training(const Checkpoint& checkpoint, Trainer& trainer);

}  // namespace dtk
