// From the [data] table to a data source that fits the model.
#pragma once
#include <memory>

#include "toolkit/config/config_io.h"
#include "toolkit/data/image_source.h"

namespace dtk::dit {

/// Opens what the [data] table names and checks it against the [model] table: channels, height and width
/// (both image_size), and no more classes than the model has; and against data.samples and data.validation.
/// Images are decoded by train.threads threads. Throws ConfigError for keys that are missing or do not fit
/// the samples, DataError for the files; each starts with the place of the key, where the user wrote it.
/// Error with ExitCode::memory for more images than the memory holds.
std::shared_ptr<const ImageSource> open_data(const LoadedConfig& loaded);

}  // namespace dtk::dit
