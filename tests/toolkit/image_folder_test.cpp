#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/image_folder.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

using dtk::DataError;
using dtk::open_image_folder;
using dtk::test::error_text;
using dtk::test::TemporaryFolder;

namespace {

constexpr dtk::ImageSize grey_2x3{.channels = 1, .height = 2, .width = 3};

std::string png(int64_t channels, int64_t height, int64_t width, uint8_t first) {
  dtk::Image image{.height = height, .width = width, .channels = channels, .pixels = {}};
  for (int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(first + i));
  }
  return dtk::encode_png(image);
}

std::string folder_error(const std::filesystem::path& folder) {
  return error_text<DataError>([&] { open_image_folder(folder, grey_2x3); });
}

}  // namespace

TEST_CASE("image folder: classes and files in sorted order") {
  const TemporaryFolder folder;
  folder.write("set/b/2.PNG", png(1, 2, 3, 30));
  folder.write("set/b/1.png", png(1, 2, 3, 20));
  folder.write("set/a/9.png", png(1, 2, 3, 10));
  folder.write("set/a/.hidden", "passed over");
  folder.write("set/.cache/x", "passed over");
  folder.write("set/README.md", "passed over");
  const auto source = open_image_folder(folder / "set/", grey_2x3);
  CHECK(source->size() == 3);
  CHECK(source->channels() == 1);
  CHECK(source->height() == 2);
  CHECK(source->width() == 3);
  CHECK(source->classes() == 2);
  CHECK(source->description() == "3 images 1x2x3, 2 classes (image folder, set)");

  std::vector<float> values(6);
  std::vector<int64_t> labels;
  std::vector<float> first_values;
  for (int64_t i = 0; i < 3; ++i) {
    labels.push_back(source->read(i, values.data()));
    first_values.push_back(values[0]);
  }
  CHECK(labels == std::vector<int64_t>{0, 1, 1});
  CHECK(first_values ==
        std::vector<float>{10.0F / 127.5F - 1.0F, 20.0F / 127.5F - 1.0F, 30.0F / 127.5F - 1.0F});
}

TEST_CASE("image folder: colours come as (C, H, W)") {
  const TemporaryFolder folder;
  folder.write("a/1.png", png(3, 1, 2, 0));  // (H, W, C): 0 1 2, 3 4 5
  const auto source = open_image_folder(folder.path(), {.channels = 3, .height = 1, .width = 2});
  std::vector<float> values(6);
  source->read(0, values.data());
  std::vector<int> bytes;
  for (const float value : values) bytes.push_back(static_cast<int>((value + 1) * 127.5F + 0.5F));
  CHECK(bytes == std::vector<int>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("image folder: the marker makes it synthetic") {
  const TemporaryFolder folder;
  folder.write("drawn/a/1.png", png(1, 2, 3, 0));
  folder.write("drawn/SYNTHETIC.txt", "drawn");
  CHECK(open_image_folder(folder / "drawn", grey_2x3)->description() ==
        "1 synthetic images 1x2x3, 1 classes (image folder, drawn)");
}

TEST_CASE("image folder: missing and empty folders are named") {
  const TemporaryFolder folder;
  const auto missing = folder / "missing";
  CHECK(folder_error(missing) == missing.string() + ": no such folder; check data.folder");
  const auto file = folder.write("file", "");
  CHECK(folder_error(file) == file.string() + ": not a folder; data.folder must hold one folder per class");
  CHECK(folder_error(folder.path()) ==
        folder.path().string() + ": has no class folders; images must lie in one folder per class");
  folder.write("a/1.png", png(1, 2, 3, 0));
  std::filesystem::create_directory(folder / "b");
  CHECK(folder_error(folder.path()) ==
        (folder / "b").string() + ": the class folder is empty; add images or remove it");
}

TEST_CASE("image folder: unfit files are named") {
  const TemporaryFolder folder;
  folder.write("a/1.png", png(1, 2, 3, 0));
  const auto unfit = [&](const std::string& name, const std::string& content) {
    const auto path = folder.write("a/" + name, content);
    const std::string text = folder_error(folder.path());
    REQUIRE(text.starts_with(path.string() + ": "));
    std::filesystem::remove(path);
    return text.substr(path.string().size() + 2);
  };
  CHECK(unfit("2.png", png(1, 3, 2, 0)) ==
        "the image is 1x3x2 (channels x height x width); allowed: 1x2x3, as model.channels and "
        "model.image_size say");
  CHECK(unfit("2.png", png(3, 2, 3, 0)) ==
        "the image is 3x2x3 (channels x height x width); allowed: 1x2x3, as model.channels and "
        "model.image_size say");
  CHECK(unfit("2.png", "no image") == "cannot be decoded (unknown image type); allowed: PNG, JPEG and BMP");
  CHECK(unfit("2.png", "") == "cannot be decoded (the file is empty); allowed: PNG, JPEG and BMP");
  CHECK(unfit("notes.txt", "text") ==
        "not an image; a class folder may hold only .png, .jpg, .jpeg and .bmp files");
  std::filesystem::create_directory(folder / "a/deeper.png");
  CHECK(folder_error(folder.path()) ==
        (folder / "a/deeper.png").string() +
            ": not an image; a class folder may hold only .png, .jpg, .jpeg and .bmp files");
}
