#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/idx.h>
#include <dtk/toolkit/image_folder.h>
#include <dtk/toolkit/open_data.h>
#include <dtk/toolkit/pixel_source.h>

namespace dtk {
namespace {

struct PathKey {
  const char* name;
  const std::string& value;
  const char* kind;  // the data.kind that uses it
};

void check_path_keys(const DataOptions& data) {
  const PathKey keys[] = {{"data.images", data.images, "idx"},
                          {"data.labels", data.labels, "idx"},
                          {"data.folder", data.folder, "images"}};
  for (const PathKey& key : keys) {
    const bool used = data.kind == key.kind;
    if (used && key.value.empty()) {
      throw ConfigError(std::string(key.name) + ": not set; data.kind = \"" + data.kind + "\" needs it");
    }
    if (!used && !key.value.empty()) {
      throw ConfigError(std::string(key.name) + ": set to \"" + key.value + "\", but data.kind = \"" +
                        data.kind + "\" does not use it; remove it or set data.kind = \"" + key.kind + "\"");
    }
  }
}

void check_shape(const DataSource& source, const models::DitOptions& model) {
  const std::string seen = shape_text(source.channels(), source.height(), source.width());
  if (source.height() != source.width()) {
    throw ConfigError(
        "data: samples are " + seen +
        " (channels x height x width); allowed: square samples, as model.image_size is both sides");
  }
  if (source.channels() == model.channels && source.height() == model.image_size) return;
  throw ConfigError("data: samples are " + seen + ", model.channels and model.image_size say " +
                    shape_text(model.channels, model.image_size, model.image_size) +
                    "; set model.channels = " + std::to_string(source.channels()) +
                    " and model.image_size = " + std::to_string(source.height()));
}

void check_classes(const DataSource& source, const models::DitOptions& model) {
  if (source.classes() <= model.classes) return;
  throw ConfigError("data: samples have " + std::to_string(source.classes()) +
                    " classes, model.classes says " + std::to_string(model.classes) +
                    "; set model.classes = " + std::to_string(source.classes()));
}

}  // namespace

std::shared_ptr<const DataSource> open_data(const DataOptions& data, const models::DitOptions& model) {
  if (data.kind != "idx" && data.kind != "images") {
    throw ConfigError("data.kind: \"" + data.kind + "\" is not known; allowed: idx | images");
  }
  check_path_keys(data);
  const ImageSize size{.channels = model.channels, .height = model.image_size, .width = model.image_size};
  const std::shared_ptr<const DataSource> source =
      data.kind == "idx" ? open_idx(data.images, data.labels) : open_image_folder(data.folder, size);
  check_shape(*source, model);
  check_classes(*source, model);
  return source;
}

}  // namespace dtk
