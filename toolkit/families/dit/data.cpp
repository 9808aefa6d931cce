#include "toolkit/families/dit/data.h"

#include <string>
#include <utility>

#include "toolkit/core/random_streams.h"
#include "toolkit/data/image_source.h"
#include "toolkit/families/dit/options.h"

namespace dtk::dit {
namespace {

class PlannedImages final : public ImageSource {
 public:
  using ImageSource::ImageSource;
  std::string description() const override { return std::to_string(size()) + " planned samples"; }
  int64_t read_image(int64_t, float*) const override { return 0; }
};

ImageSource::Shape shape_of(const models::DitOptions& model, int64_t samples) {
  return {samples, model.channels, model.image_size, model.image_size, model.classes};
}

}  // namespace

RunData image_data(const RunConfig& config, std::shared_ptr<const ImageSource> images,
                   const DataIdentity* before) {
  const ImageSplit split =
      hold_out(images, config.data.validation, stream_seed(config.train.seed, "validation"), before);
  std::shared_ptr<const DataSource> training = split.training;
  if (options_of(config).data.flip)
    training = std::make_shared<FlippedSource>(split.training, stream_seed(config.train.seed, "flip"));
  const ClassCounts classes = {images->classes(), options_of(config).model.classes};
  const DataRemarks remarks = images->remarks();
  return {std::move(images), {std::move(training), split.held_out, split.held_out_below}, classes, remarks};
}

std::shared_ptr<const ImageSource> planned_images(const models::DitOptions& model, int64_t samples) {
  return std::make_shared<PlannedImages>(shape_of(model, samples));
}

}  // namespace dtk::dit
