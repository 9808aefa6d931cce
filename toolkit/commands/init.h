// The steps of dit-train --init: a first configuration for data that somebody has.
#pragma once
#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <string>

#include "toolkit/config/config_io.h"
#include "toolkit/io/file_system.h"
#include "toolkit/report/plan_summary.h"

namespace dtk {

struct InitWorld {
  FileSystem& files;
  std::function<double()> seconds;  // since any fixed instant
  std::function<StartPlan(const LoadedConfig&, c10::Device)> plan;
  std::function<void(const std::string&)> message;  // lines of progress
  std::function<bool()> stop_requested;             // asked between trial steps
};

/// Looks at `data` (ModelFamily::draft()) and writes a configuration that runs to `out`, or to <name>.toml
/// where that is empty: the largest of the family's models whose plan fits into half of the memory that is
/// there, and whose trial step takes at most a second on `device`, or else the smallest; the batch likewise.
/// Returns the file. Throws ConfigError for data of no family, and where `out` exists; DataError; Error with
/// ExitCode::stopped.
std::filesystem::path write_first_config(const std::filesystem::path& data, const std::filesystem::path& out,
                                         c10::Device device, const InitWorld& world);

}  // namespace dtk
