// The data that a DiT is trained on: images or latents, with classes.
#pragma once
#include <dtk/models/dit_options.h>

#include <memory>

#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/data/image_source.h"

namespace dtk::dit {

/// `images` as `config` trains on them: data.validation of them held out, the others mirrored with data.flip.
/// `before` as ModelFamily::open_data() takes it.
RunData image_data(const RunConfig& config, std::shared_ptr<const ImageSource> images,
                   const DataIdentity* before = nullptr);

/// Opens what the [data] table names and checks it against the [model] table: channels, height and width
/// (both image_size), and no more classes than the model has; and against data.samples and data.validation.
/// Images are decoded by train.threads threads. Throws ConfigError for keys that are missing or do not fit
/// the samples, DataError for the files; each starts with the place of the key, where the user wrote it.
/// Error with ExitCode::memory for more images than the memory holds.
/// `before` and `progress` as ModelFamily::open_data() takes them: the advice to a run that goes on is
/// another.
std::shared_ptr<const ImageSource> open_data(const LoadedConfig& loaded, const DataIdentity* before = nullptr,
                                             const OpeningProgress& progress = {});

/// Of the model's shape; their rows hold anything, as nothing is written to them.
std::shared_ptr<const ImageSource> planned_images(const models::DitOptions& model, int64_t samples);

}  // namespace dtk::dit
