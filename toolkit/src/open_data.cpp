#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/idx.h>
#include <dtk/toolkit/image_folder.h>
#include <dtk/toolkit/open_data.h>
#include <dtk/toolkit/pixel_source.h>

namespace dtk {
namespace {

// Where the user wrote `key`, for the beginning of a message.
std::string place_of(const LoadedConfig& loaded, const std::string& key) {
  const auto place = loaded.places.find(key);
  return place == loaded.places.end() ? "" : place->second + ": ";
}

void check_is_set(const LoadedConfig& loaded, const std::string& key, const std::string& value) {
  if (!value.empty()) return;
  const std::string place = place_of(loaded, key);
  throw ConfigError((place.empty() ? place_of(loaded, "data.kind") : place) + key +
                    " is not set; data.kind = \"" + loaded.config.data.kind + "\" needs it");
}

void check_shape(const LoadedConfig& loaded, const DataSource& source, const std::string& data_key) {
  const models::DitOptions& model = loaded.config.model;
  const std::string seen = shape_text(source.channels(), source.height(), source.width());
  if (source.height() != source.width()) {
    throw ConfigError(place_of(loaded, data_key) + "data: samples are " + seen +
                      " (channels x height x width); allowed: square samples, as model.image_size is both "
                      "sides");
  }
  if (source.channels() == model.channels && source.height() == model.image_size) return;
  const std::string key = source.channels() == model.channels ? "model.image_size" : "model.channels";
  throw ConfigError(place_of(loaded, key) + "data: samples are " + seen +
                    ", model.channels and model.image_size say " +
                    shape_text(model.channels, model.image_size, model.image_size) +
                    "; set model.channels = " + std::to_string(source.channels()) +
                    " and model.image_size = " + std::to_string(source.height()));
}

void check_classes(const LoadedConfig& loaded, const DataSource& source) {
  const int64_t classes = loaded.config.model.classes;
  if (source.classes() <= classes) return;
  throw ConfigError(place_of(loaded, "model.classes") + "data: samples have " +
                    std::to_string(source.classes()) + " classes, model.classes says " +
                    std::to_string(classes) + "; set model.classes = " + std::to_string(source.classes()));
}

// Messages about a file start with its path.
std::string key_of_file(const DataOptions& data, const std::string& message) {
  if (data.kind == "images") return "data.folder";
  return message.starts_with(data.labels + ":") ? "data.labels" : "data.images";
}

std::shared_ptr<const DataSource> open_files(const LoadedConfig& loaded) try {
  const DataOptions& data = loaded.config.data;
  const models::DitOptions& model = loaded.config.model;
  if (data.kind == "idx") return open_idx(data.images, data.labels);
  return open_image_folder(
      data.folder, {.channels = model.channels, .height = model.image_size, .width = model.image_size});
} catch (const DataError& error) {
  throw DataError(place_of(loaded, key_of_file(loaded.config.data, error.what())) + error.what());
}

}  // namespace

std::shared_ptr<const DataSource> open_data(const LoadedConfig& loaded) {
  const DataOptions& data = loaded.config.data;
  if (data.kind == "idx") {
    check_is_set(loaded, "data.images", data.images);
    check_is_set(loaded, "data.labels", data.labels);
  } else {
    check_is_set(loaded, "data.folder", data.folder);
  }
  const std::shared_ptr<const DataSource> source = open_files(loaded);
  check_shape(loaded, *source, data.kind == "idx" ? "data.images" : "data.folder");
  check_classes(loaded, *source);
  return source;
}

}  // namespace dtk
