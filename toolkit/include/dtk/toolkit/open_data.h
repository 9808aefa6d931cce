// From the [data] table to a data source that fits the model.
#pragma once
#include <dtk/models/dit_options.h>
#include <dtk/toolkit/config.h>
#include <dtk/toolkit/data_source.h>

#include <memory>

namespace dtk {

/// Opens what `data` names and checks it against `model`: channels, height and width (both image_size), and
/// no more classes than the model has. Throws ConfigError for keys that are missing, do not belong to
/// data.kind or do not fit the samples, DataError for the files.
std::shared_ptr<const DataSource> open_data(const DataOptions& data, const models::DitOptions& model);

}  // namespace dtk
