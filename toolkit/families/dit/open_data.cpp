// From the [data] table to a data source that fits the model.
#include <dtk/policies/advice.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>

#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/data/drawn_garments.h"
#include "toolkit/data/idx.h"
#include "toolkit/data/image_folder.h"
#include "toolkit/data/latents.h"
#include "toolkit/data/pixel_source.h"
#include "toolkit/data/synthetic_source.h"
#include "toolkit/families/dit/data.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/families/dit/sampling.h"

namespace dtk::dit {
namespace {

using policies::advise;

void check_is_set(const LoadedConfig& loaded, const std::string& key, bool is_set) {
  if (is_set) return;
  const std::string place = location_of(loaded, key);
  throw ConfigError(fmt::format("{}{} is not set; data.kind = \"{}\" needs it; set it, or change data.kind",
                                place.empty() ? location_of(loaded, "data.kind") : place, key,
                                loaded.config.data.kind));
}

void check_shape(const LoadedConfig& loaded, const ImageSource& source, const std::string& data_key) {
  const models::DitOptions& model = options_of(loaded.config).model;
  const std::string seen = shape_text(source.channels(), source.height(), source.width());
  if (source.height() != source.width()) {
    throw ConfigError(
        fmt::format("{}data: samples are {} (channels x height x width); allowed: square samples, as "
                    "model.image_size is both sides; crop or pad them",
                    location_of(loaded, data_key), seen));
  }
  if (source.channels() == model.channels && source.height() == model.image_size) return;
  const std::string key = source.channels() == model.channels ? "model.image_size" : "model.channels";
  const bool maybe_moments =
      image_kind(loaded.config) == ImageKind::latents && source.channels() == 2 * model.channels;
  throw ConfigError(fmt::format(
      "{}data: samples are {}, model.channels and model.image_size say {}; {} and {}{}",
      location_of(loaded, key), seen, shape_text(model.channels, model.image_size, model.image_size),
      advise("model.channels", std::to_string(source.channels())),
      advise("model.image_size", std::to_string(source.height())),
      maybe_moments ? ". If these are means and deviations of an autoencoder, store a sample or "
                      "the mean of each, " +
                          std::to_string(model.channels) + " channels"
                    : ""));
}

// A run that goes on cannot have another model.
void check_classes(const LoadedConfig& loaded, const ImageSource& source, bool goes_on) {
  const int64_t classes = options_of(loaded.config).model.classes;
  if (source.classes() <= classes) return;
  const std::string more = std::to_string(source.classes());
  throw ConfigError(
      fmt::format("{}data: samples have {} classes, model.classes says {}{}",
                  location_of(loaded, "model.classes"), more, classes,
                  goes_on ? ", and a run that goes on keeps its model; take the new classes away again, or "
                            "begin a new run with model.classes = " +
                                more
                          : "; " + advise("model.classes", more)));
}

void check_grid(const LoadedConfig& loaded, const ImageSource& source) try {
  grid_classes(loaded.config).labels(source.class_names());
} catch (const std::invalid_argument& problem) {
  throw ConfigError(location_of(loaded, "sample.classes") + "sample.classes: " + problem.what());
}

// `is_limited`: what is held out was decided before.
void check_count(const LoadedConfig& loaded, const ImageSource& source, bool is_limited) {
  const DataOptions& data = loaded.config.data;
  const std::string size = std::to_string(source.size());
  if (data.samples && *data.samples != source.size()) {
    throw ConfigError(
        fmt::format("{}data.samples = {}, but there are {}: {}; give the files that were meant, or {}",
                    location_of(loaded, "data.samples"), *data.samples, size, source.description(),
                    advise("data.samples", size)));
  }
  if (data.validation >= source.size() && !is_limited) {
    throw ConfigError(fmt::format("{}data.validation = {} leaves nothing to train on: {}; allowed: [0, {}]",
                                  location_of(loaded, "data.validation"), data.validation,
                                  source.description(), source.size() - 1));
  }
}

// The key that names the samples themselves.
std::string main_key(ImageKind kind) {
  if (kind == ImageKind::images) return "data.folder";
  if (kind == ImageKind::latents) return "data.latents";
  return kind == ImageKind::idx ? "data.images" : "data.samples";
}

int decoding_threads(const TrainOptions& train) {
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(train.threads.value_or(cores));
}

// Neither of the files; where one is, the other's name is misspelt.
bool both_are_missing(const ImageOptions& data) {
  const auto missing = [](const std::string& file) {
    std::error_code problem;
    return !std::filesystem::exists(file, problem) && !problem;
  };
  return missing(data.images) && missing(data.labels);
}

std::shared_ptr<const ImageSource> open_files(const LoadedConfig& loaded,
                                              const OpeningProgress& progress) try {
  const ImageKind kind = image_kind(loaded.config);
  const ImageOptions& data = options_of(loaded.config).data;
  const models::DitOptions& model = options_of(loaded.config).model;
  if (kind == ImageKind::idx) {
    if (data.if_missing == IfMissing::drawn && both_are_missing(data))
      return std::make_shared<PixelSource>(draw_garments(data.images));
    return open_idx(data.images, data.labels);
  }
  if (kind == ImageKind::latents) {
    return open_latents({.latents = data.latents,
                         .labels = data.labels,
                         .scale = data.latent_scale,
                         .shift = data.latent_shift});
  }
  if (kind == ImageKind::synthetic) {
    return std::make_shared<SyntheticSource>(SyntheticSource::Shape{.size = *loaded.config.data.samples,
                                                                    .channels = model.channels,
                                                                    .height = model.image_size,
                                                                    .width = model.image_size,
                                                                    .classes = model.classes});
  }
  return open_image_folder(
      data.folder, {.channels = model.channels, .height = model.image_size, .width = model.image_size},
      {.skip_corrupt = loaded.config.data.on_corrupt == OnCorrupt::skip,
       .threads = decoding_threads(loaded.config.train),
       .strict = data.strict_folder,
       .convert = data.convert,
       .progress = progress});
} catch (const LabelsError& error) {
  throw DataError(location_of(loaded, "data.labels") + error.what());
} catch (const DataError& error) {
  throw DataError(location_of(loaded, main_key(image_kind(loaded.config))) + error.what());
}

}  // namespace

std::shared_ptr<const ImageSource> open_data(const LoadedConfig& loaded, const DataIdentity* before,
                                             const OpeningProgress& progress) {
  const ImageKind kind = image_kind(loaded.config);
  const ImageOptions& data = options_of(loaded.config).data;
  if (kind == ImageKind::idx) {
    check_is_set(loaded, "data.images", !data.images.empty());
    check_is_set(loaded, "data.labels", !data.labels.empty());
  } else if (kind == ImageKind::images) {
    check_is_set(loaded, "data.folder", !data.folder.empty());
  } else if (kind == ImageKind::latents) {
    check_is_set(loaded, "data.latents", !data.latents.empty());
  } else {
    check_is_set(loaded, "data.samples", loaded.config.data.samples.has_value());
  }
  const std::shared_ptr<const ImageSource> source = open_files(loaded, progress);
  check_shape(loaded, *source, main_key(kind));
  check_classes(loaded, *source, before != nullptr);
  check_count(loaded, *source, before != nullptr && before->held_out_below.has_value());
  check_grid(loaded, *source);
  return source;
}

}  // namespace dtk::dit
