#include "toolkit/run/data.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/flipped_source.h"
#include "toolkit/data/open_data.h"
#include "toolkit/families/diffusion_planner/frame_source.h"

namespace dtk {
namespace {

std::shared_ptr<const DataSource> frames_of(const LoadedConfig& loaded, const std::string& key,
                                            const std::string& path) try {
  return std::make_shared<diffusion_planner::FrameSource>(path, frame_options_of(loaded.config));
} catch (const DataError& error) {
  throw DataError(location_of(loaded, key) + error.what());
}

void add(const DataRemarks& more, DataRemarks& remarks) {
  remarks.synthetic = remarks.synthetic || more.synthetic;
  remarks.skipped += more.skipped;
  remarks.reasons.insert(remarks.reasons.end(), more.reasons.begin(), more.reasons.end());
}

RunData open_frames(const LoadedConfig& loaded) {
  const DataOptions& data = loaded.config.data;
  if (data.frames.empty()) {
    throw ConfigError(
        location_of(loaded, "train.model") +
        "data.frames is not set; train.model = \"diffusion_planner\" needs it: a folder of .npz "
        "frames, or a JSON list of their paths");
  }
  RunData opened;
  opened.all = opened.split.training = frames_of(loaded, "data.frames", data.frames);
  if (!data.held_out.empty()) {
    std::error_code none;
    if (std::filesystem::equivalent(data.held_out, data.frames, none)) {
      throw ConfigError(location_of(loaded, "data.held_out") + "data.held_out = " + data.held_out +
                        " names the frames that data.frames does, and is to be of others; hold some out, or "
                        "leave data.held_out out");
    }
    opened.split.held_out = frames_of(loaded, "data.held_out", data.held_out);
  }
  opened.remarks = opened.all->remarks();
  if (opened.split.held_out) add(opened.split.held_out->remarks(), opened.remarks);
  return opened;
}

}  // namespace

RunData image_data(const RunConfig& config, std::shared_ptr<const ImageSource> images) {
  const ImageSplit split =
      hold_out(images, config.data.validation, stream_seed(config.train.seed, "validation"));
  const ClassCounts classes = {images->classes(), config.model.classes};
  const DataRemarks remarks = images->remarks();
  return {std::move(images), {with_flips(config, split.training), split.held_out}, classes, remarks};
}

diffusion_planner::FrameOptions frame_options_of(const RunConfig& config) {
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  return {.layout = diffusion_planner::layout_of(config.diffusion_planner),
          .sizes = diffusion_planner::sizes_of(config.diffusion_planner),
          .skip_corrupt = config.data.on_corrupt == "skip",
          .threads = static_cast<int>(config.train.threads.value_or(cores))};
}

RunData open_run_data(const LoadedConfig& loaded) {
  if (loaded.config.drives()) return open_frames(loaded);
  return image_data(loaded.config, open_data(loaded));
}

}  // namespace dtk
