#include <dtk/toolkit/flipped_source.h>
#include <dtk/toolkit/open_data.h>
#include <dtk/toolkit/run_data.h>
#include <dtk/toolkit/streams.h>

#include <utility>

namespace dtk {

RunData image_data(const RunConfig& config, std::shared_ptr<const ImageSource> images) {
  const ImageSplit split =
      hold_out(images, config.data.validation, stream_seed(config.train.seed, "validation"));
  const ClassCounts classes = {images->classes(), config.model.classes};
  return {std::move(images), {with_flips(config, split.training), split.held_out}, classes};
}

RunData open_run_data(const LoadedConfig& loaded) {
  return image_data(loaded.config, open_data(loaded));
}

}  // namespace dtk
