#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/image.h>
#include <dtk/toolkit/open_data.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/gzip.h"
#include "support/temporary_folder.h"

using dtk::ConfigError;
using dtk::DataOptions;
using dtk::open_data;
using dtk::models::DitOptions;
using dtk::test::big_endian;
using dtk::test::error_text;
using dtk::test::TemporaryFolder;

namespace {

/// Two images of `height` x `width`, classes 0 and 4.
DataOptions idx_set(const TemporaryFolder& folder, uint32_t height, uint32_t width) {
  DataOptions data;
  data.kind = "idx";
  data.images =
      folder.write("images", big_endian({0x803, 2, height, width}) + std::string(2 * height * width, 'x'))
          .string();
  data.labels = folder.write("labels", big_endian({0x801, 2}) + std::string("\0\4", 2)).string();
  return data;
}

DitOptions model_of(int64_t channels, int64_t image_size, int64_t classes) {
  DitOptions model;
  model.channels = channels;
  model.image_size = image_size;
  model.classes = classes;
  return model;
}

std::string config_error(const DataOptions& data, const DitOptions& model) {
  return error_text<ConfigError>([&] { open_data(data, model); });
}

}  // namespace

TEST_CASE("open_data: opens each kind") {
  const TemporaryFolder folder;
  CHECK(open_data(idx_set(folder, 4, 4), model_of(1, 4, 5))->size() == 2);

  const dtk::Image image{.height = 2, .width = 2, .channels = 3, .pixels = std::vector<uint8_t>(12)};
  folder.write("set/a/1.png", dtk::encode_png(image));
  DataOptions data;
  data.kind = "images";
  data.folder = (folder / "set").string();
  CHECK(open_data(data, model_of(3, 2, 1))->description() == "1 images 3x2x2, 1 classes (image folder, set)");
}

TEST_CASE("open_data: samples must fit the model") {
  const TemporaryFolder folder;
  CHECK(config_error(idx_set(folder, 28, 28), model_of(4, 32, 10)) ==
        "data: samples are 1x28x28, model.channels and model.image_size say 4x32x32; set model.channels = 1 "
        "and model.image_size = 28");
  CHECK(config_error(idx_set(folder, 28, 28), model_of(3, 28, 10)) ==
        "data: samples are 1x28x28, model.channels and model.image_size say 3x28x28; set model.channels = 1 "
        "and model.image_size = 28");
  CHECK(config_error(idx_set(folder, 28, 20), model_of(1, 28, 10)) ==
        "data: samples are 1x28x20 (channels x height x width); allowed: square samples, as model.image_size "
        "is "
        "both sides");
  CHECK(config_error(idx_set(folder, 4, 4), model_of(1, 4, 4)) ==
        "data: samples have 5 classes, model.classes says 4; set model.classes = 5");
}

TEST_CASE("open_data: path keys belong to their kind") {
  const DitOptions model = model_of(1, 28, 10);
  DataOptions data;
  data.kind = "idx";
  CHECK(config_error(data, model) == "data.images: not set; data.kind = \"idx\" needs it");
  data.images = "a";
  CHECK(config_error(data, model) == "data.labels: not set; data.kind = \"idx\" needs it");
  data.labels = "b";
  data.folder = "c";
  CHECK(config_error(data, model) ==
        "data.folder: set to \"c\", but data.kind = \"idx\" does not use it; remove it or set data.kind = "
        "\"images\"");
  data.kind = "images";
  CHECK(config_error(data, model) ==
        "data.images: set to \"a\", but data.kind = \"images\" does not use it; remove it or set data.kind = "
        "\"idx\"");
  data.images = data.labels = data.folder = "";
  CHECK(config_error(data, model) == "data.folder: not set; data.kind = \"images\" needs it");
  data.kind = "tar";
  CHECK(config_error(data, model) == "data.kind: \"tar\" is not known; allowed: idx | images");
}
