// What all ranks of a job must have alike, and what the leader decides for them.
#pragma once
#include <c10/core/Device.h>

#include <map>
#include <optional>
#include <string>

#include "toolkit/config/config_io.h"
#include "toolkit/distributed/ranks.h"

namespace dtk {

/// Gives `loaded` to so many ranks: unless it was written, train.accumulate is that of the checkpoint that
/// the run goes on from, if there is one, else the number of ranks. Throws ConfigError where they do not
/// divide it, and as refuse_for_one_rank().
void share_out(LoadedConfig& loaded, int64_t ranks, std::optional<int64_t> accumulate_before = std::nullopt);
/// Throws ConfigError for what only one rank can do, where there are several.
void refuse_for_one_rank(const LoadedConfig& loaded);

/// Throws ConfigError where distributed.backend moves no tensors of `device` between several ranks.
void check_backend(const LoadedConfig& loaded, c10::Device device);

/// Throws ConfigError at each rank whose kind of device, other facts or configuration are not the leader's:
/// the first that differs with both values. `facts`: by name, such as the program's version.
void agree_on_start(Ranks& ranks, const LoadedConfig& loaded, c10::Device device,
                    std::map<std::string, std::string> facts);

/// The leader's configuration, with all that it decided. Origins are those of a configuration read from a
/// file.
LoadedConfig leaders_config(Ranks& ranks, const LoadedConfig& loaded);

}  // namespace dtk
