// The data that a DiT is trained on: images or latents, with classes.
#pragma once
#include <dtk/models/dit_options.h>

#include <memory>

#include "toolkit/config/config.h"
#include "toolkit/data/held_out.h"
#include "toolkit/data/image_source.h"

namespace dtk::dit {

/// `images` as `config` trains on them: data.validation of them held out, the others mirrored with data.flip.
RunData image_data(const RunConfig& config, std::shared_ptr<const ImageSource> images);

/// Of the model's shape; their rows hold anything, as nothing is written to them.
std::shared_ptr<const ImageSource> planned_images(const models::DitOptions& model, int64_t samples);

/// Of the model's shape, with values.
std::shared_ptr<const ImageSource> made_up_images(const models::DitOptions& model, int64_t samples);

}  // namespace dtk::dit
