// What all ranks of a job must have alike, and what the leader decides for them.
#pragma once
#include <c10/core/Device.h>

#include <string>

#include "toolkit/config/config_io.h"
#include "toolkit/distributed/ranks.h"

namespace dtk {

/// Gives `loaded` to so many ranks: train.accumulate is their number unless it was written. Throws
/// ConfigError where they do not divide it, and for what only one rank can do.
void share_out(LoadedConfig& loaded, int64_t ranks);

/// Throws ConfigError at each rank whose program, LibTorch, kind of device or configuration is not the
/// leader's: the first key that differs with both values. `program`: its version.
void agree_on_start(Ranks& ranks, const LoadedConfig& loaded, c10::Device device, const std::string& program);

/// The leader's configuration, with all that it decided. Origins are those of a configuration read from a
/// file.
LoadedConfig leaders_config(Ranks& ranks, const LoadedConfig& loaded);

}  // namespace dtk
