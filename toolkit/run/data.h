// The data of a run: what it trains on, and what is held out.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/data/image_source.h"
#include "toolkit/families/diffusion_planner/frames.h"

namespace dtk {

/// Labels are 0 .. count - 1.
struct ClassCounts {
  int64_t data = 0;
  int64_t model = 0;
};

struct RunData {
  std::shared_ptr<const DataSource> all;  // for what is said of them
  DataSplit split;
  ClassCounts classes = {};  // of data and models that have some
  DataRemarks remarks = {};  // of all that was opened
};

/// `images` as `config` trains on them: data.validation of them held out, the others mirrored with data.flip.
RunData image_data(const RunConfig& config, std::shared_ptr<const ImageSource> images);

/// How the driving planner of `config` reads its frames.
diffusion_planner::FrameOptions frame_options_of(const RunConfig& config);

/// Opens what [data] names (open_data.h). Throws ConfigError and DataError.
RunData open_run_data(const LoadedConfig& loaded);

}  // namespace dtk
