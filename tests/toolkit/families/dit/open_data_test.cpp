#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/gzip.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/image.h"
#include "toolkit/families/dit/data.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/npy.h"

namespace dit = dtk::dit;
using dtk::ConfigError;
using dtk::DataError;
using dtk::DataOptions;
using dtk::LoadedConfig;
using dtk::models::DitOptions;
using dtk::test::big_endian;
using dtk::test::error_text;
using dtk::test::TemporaryFolder;

namespace {

/// All of [data].
struct Data : DataOptions, dit::ImageOptions {};

/// Two images of `height` x `width`, classes 0 and 4.
Data idx_set(const TemporaryFolder& folder, uint32_t height, uint32_t width) {
  Data data;
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

LoadedConfig loaded_from(const Data& data, const DitOptions& model) {
  LoadedConfig loaded;
  loaded.config.data = data;
  dit::options_of(loaded.config).model = model;
  dit::options_of(loaded.config).data = data;
  return loaded;
}

std::string config_error(const Data& data, const DitOptions& model) {
  return error_text<ConfigError>([&] { dit::open_data(loaded_from(data, model)); });
}

}  // namespace

TEST_CASE("open_data: opens each kind") {
  const TemporaryFolder folder;
  CHECK(dit::open_data(loaded_from(idx_set(folder, 4, 4), model_of(1, 4, 5)))->size() == 2);

  const dtk::Image image{.height = 2, .width = 2, .channels = 3, .pixels = std::vector<uint8_t>(12)};
  folder.write("set/a/1.png", dtk::encode_png(image));
  Data data;
  data.kind = "images";
  data.folder = (folder / "set").string();
  CHECK(dit::open_data(loaded_from(data, model_of(3, 2, 1)))->description() ==
        "1 images 3x2x2, 1 classes (image folder, set)");
}

TEST_CASE("open_data: samples must fit the model") {
  const TemporaryFolder folder;
  CHECK(config_error(idx_set(folder, 28, 28), model_of(4, 32, 10)) ==
        "data: samples are 1x28x28, model.channels and model.image_size say 4x32x32; set model.channels = 1 "
        "and set model.image_size = 28");
  CHECK(config_error(idx_set(folder, 28, 28), model_of(3, 28, 10)) ==
        "data: samples are 1x28x28, model.channels and model.image_size say 3x28x28; set model.channels = 1 "
        "and set model.image_size = 28");
  CHECK(config_error(idx_set(folder, 28, 20), model_of(1, 28, 10)) ==
        "data: samples are 1x28x20 (channels x height x width); allowed: square samples, as model.image_size "
        "is "
        "both sides; crop or pad them");
  CHECK(config_error(idx_set(folder, 4, 4), model_of(1, 4, 4)) ==
        "data: samples have 5 classes, model.classes says 4; set model.classes = 5");
}

TEST_CASE("open_data: a run that goes on keeps its classes") {
  const TemporaryFolder folder;
  const dtk::DataIdentity before;
  const LoadedConfig loaded = loaded_from(idx_set(folder, 4, 4), model_of(1, 4, 4));
  CHECK(error_text<ConfigError>([&] { dit::open_data(loaded, &before); }) ==
        "data: samples have 5 classes, model.classes says 4, and a run that goes on keeps its model; take "
        "the new "
        "classes away again, or begin a new run with model.classes = 5");
}

TEST_CASE("open_data: the path keys of the kind must be set") {
  const DitOptions model = model_of(1, 28, 10);
  Data data;
  data.kind = "idx";
  CHECK(config_error(data, model) ==
        "data.images is not set; data.kind = \"idx\" needs it; set it, or change data.kind");
  data.images = "a";
  CHECK(config_error(data, model) ==
        "data.labels is not set; data.kind = \"idx\" needs it; set it, or change data.kind");
  data = {};
  data.kind = "latents";
  CHECK(config_error(data, model) ==
        "data.latents is not set; data.kind = \"latents\" needs it; set it, or change data.kind");
  data.kind = "synthetic";
  CHECK(config_error(data, model) ==
        "data.samples is not set; data.kind = \"synthetic\" needs it; set it, or change data.kind");
  data.kind = "images";
  CHECK(config_error(data, model) ==
        "data.folder is not set; data.kind = \"images\" needs it; set it, or change data.kind");
}

TEST_CASE("open_data: synthetic samples have the model's shape") {
  Data data;
  data.kind = "synthetic";
  data.samples = 12;
  const auto source = dit::open_data(loaded_from(data, model_of(4, 6, 5)));
  CHECK(source->description() == "12 made-up samples 4x6x6, 5 classes (SYNTHETIC)");
  CHECK(source->remarks().synthetic);
}

TEST_CASE("open_data: where both files are not there, drawn garments are, if that was asked for") {
  const TemporaryFolder folder;
  const std::string nowhere = (folder / "nowhere.gz").string();
  Data data = idx_set(folder, 28, 28);
  data.if_missing = dit::IfMissing::drawn;
  CHECK_FALSE(dit::open_data(loaded_from(data, model_of(1, 28, 10)))->remarks().synthetic);
  data.labels = nowhere;
  CHECK(error_text<DataError>([&] {
          dit::open_data(loaded_from(data, model_of(1, 28, 10)));
        }).starts_with(nowhere));  // misspelt, since the images are there
  data.images = nowhere;
  const auto source = dit::open_data(loaded_from(data, model_of(1, 28, 10)));
  CHECK(source->description() ==
        "4000 drawn images 1x28x28, 10 classes (SYNTHETIC: there is no " + nowhere + ")");
  CHECK(source->remarks().synthetic);
  std::vector<float> one(28 * 28), again(one), other(one);
  CHECK(source->read_image(27, one.data()) == 7);
  CHECK(source->read_image(27, again.data()) == 7);
  CHECK(source->read_image(37, other.data()) == 7);
  CHECK(one == again);
  CHECK(one != other);
  CHECK(one.front() == -1.0F);
  CHECK(std::all_of(one.begin(), one.end(), [](float value) { return value >= -1 && value <= 1; }));
  CHECK(std::count(one.begin(), one.end(), -1.0F) < 28 * 28);
  CHECK(config_error(data, model_of(1, 32, 10)).find("samples are 1x28x28") != std::string::npos);
  data.if_missing = dit::IfMissing::error;
  CHECK(error_text<DataError>([&] {
          dit::open_data(loaded_from(data, model_of(1, 28, 10)));
        }).starts_with(nowhere));
}

TEST_CASE("open_data: latents, and hints for those that do not fit") {
  const TemporaryFolder folder;
  const auto save = [&](const std::string& name, const at::Tensor& values) {
    const auto file = dtk::posix_file_system().create(folder / name);
    dtk::write_npy(*file, values);
    file->close();
    return (folder / name).string();
  };
  Data data;
  data.kind = "latents";
  data.latents = save("latents.npy", at::ones({2, 8, 4, 4}));
  data.labels = save("labels.npy", at::tensor({0, 3}, at::kLong));
  data.latent_scale = 0.25;
  const auto source = dit::open_data(loaded_from(data, model_of(8, 4, 4)));
  std::vector<float> values(8 * 4 * 4);
  CHECK(source->read_image(1, values.data()) == 3);
  CHECK(values == std::vector<float>(8 * 4 * 4, 0.25F));
  const std::string unfit =
      "data: samples are 8x4x4, model.channels and model.image_size say 4x4x4; set model.channels = 8 and "
      "set model.image_size = 4";
  CHECK(config_error(data, model_of(4, 4, 4)) ==
        unfit +
            ". If these are means and deviations of an autoencoder, store a sample or the mean of each, 4 "
            "channels");
  CHECK(
      config_error(data, model_of(3, 4, 4)).ends_with("set model.channels = 8 and set model.image_size = 4"));
  data.labels = save("labels.npy", at::tensor({0, 3, 1}, at::kLong));
  CHECK(error_text<DataError>([&] { dit::open_data(loaded_from(data, model_of(8, 4, 4))); }) ==
        data.labels +
            ": labels have the shape (3); allowed: (2), one for each sample of the latents; give the labels "
            "of these latents");
}

TEST_CASE("open_data: the number of samples is checked, and some must be left to train on") {
  const TemporaryFolder folder;
  Data data = idx_set(folder, 4, 4);
  data.samples = 2;
  data.validation = 1;
  CHECK(dit::open_data(loaded_from(data, model_of(1, 4, 5)))->size() == 2);
  data.validation = 2;
  CHECK(
      config_error(data, model_of(1, 4, 5)) ==
      "data.validation = 2 leaves nothing to train on: 2 images 1x4x4, 5 classes (IDX, images); allowed: [0, "
      "1]");
  data.samples = 60000;
  CHECK(config_error(data, model_of(1, 4, 5)) ==
        "data.samples = 60000, but there are 2: 2 images 1x4x4, 5 classes (IDX, images); give the files that "
        "were meant, or set data.samples = 2");
}

TEST_CASE("open_data: what the user wrote is named by its place") {
  const TemporaryFolder folder;
  const Data data = idx_set(folder, 28, 28);
  const auto error_of = [&](const std::string& text, const std::vector<std::string>& overrides) {
    const LoadedConfig loaded = dtk::parse_config("train.steps = 1\n" + text, "base.toml", overrides);
    return error_text<dtk::Error>([&] { dit::open_data(loaded); });
  };
  const std::string custom =
      "model = {depth = 1, hidden = 8, heads = 1, patch = 4, channels = 1, image_size = 28, classes = 4}\n";
  const std::vector<std::string> paths = {"data.images=" + data.images, "data.labels=" + data.labels};
  const auto and_set = [&](const std::string& override) {
    std::vector<std::string> all = paths;
    all.push_back(override);
    return all;
  };
  CHECK(error_of(custom, paths) ==
        "base.toml:2:96: data: samples have 5 classes, model.classes says 4; set model.classes = 5");
  CHECK(error_of(custom, and_set("model.image_size=32")) ==
        "--set model.image_size=32: data: samples are 1x28x28, model.channels and model.image_size say "
        "1x32x32; set model.channels = 1 and set model.image_size = 28");
  CHECK(
      error_of(custom, and_set("model.channels=3")).starts_with("--set model.channels=3: data: samples are"));
  CHECK(error_of(custom + "data.kind = \"idx\"\n", {}) ==
        "base.toml:3:13: data.images is not set; data.kind = \"idx\" needs it; set it, or change data.kind");
  CHECK(error_of(custom + "data.images = \"\"\n", {}) ==
        "base.toml:3:15: data.images is not set; data.kind = \"idx\" needs it; set it, or change data.kind");
  CHECK(error_of(custom, {"data.images=gone", "data.labels=" + data.labels}) ==
        "--set data.images=gone: gone: no such file; check the path");
  CHECK(error_of(custom + "data.labels = \"gone\"\n", {"data.images=" + data.images}) ==
        "base.toml:3:15: gone: no such file; check the path");
  CHECK(error_of(custom, {"data.kind=latents", "data.latents=gone.npy", "data.labels=l"}) ==
        "--set data.latents=gone.npy: cannot read gone.npy: No such file or directory; check the path");
  CHECK(
      error_of(custom, {"data.kind=images", "data.folder=gone"}).starts_with("--set data.folder=gone: gone"));
}
