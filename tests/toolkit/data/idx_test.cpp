#include "toolkit/data/idx.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/gzip.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"

using dtk::DataError;
using dtk::open_idx;
using dtk::test::big_endian;
using dtk::test::error_text;
using dtk::test::gzip;
using dtk::test::TemporaryFolder;

namespace {

constexpr uint32_t image_magic = 0x803;
constexpr uint32_t label_magic = 0x801;

/// Two images of 2 x 3 pixels.
const std::string pixels("\x00\x01\x02\x7f\x80\xff\x0a\x0b\x0c\x0d\x0e\x0f", 12);
const std::string images = big_endian({image_magic, 2, 2, 3}) + pixels;
const std::string labels = big_endian({label_magic, 2}) + std::string("\x04\x01", 2);

/// The error for an image file of this content beside good labels; the file's path is cut off the front.
std::string image_error(const std::string& content) {
  const TemporaryFolder folder;
  const auto path = folder.write("images", content);
  const std::string text = error_text<DataError>([&] { open_idx(path, folder.write("labels", labels)); });
  REQUIRE(text.starts_with(path.string() + ": "));
  return text.substr(path.string().size() + 2);
}

}  // namespace

TEST_CASE("idx: values, labels and shape, gzip and plain") {
  const TemporaryFolder folder;
  const auto packed = GENERATE(false, true);
  const auto source = open_idx(folder.write("images.idx", packed ? gzip(images) : images),
                               folder.write("labels.idx", packed ? gzip(labels) : labels));
  CHECK(source->size() == 2);
  CHECK(source->channels() == 1);
  CHECK(source->height() == 2);
  CHECK(source->width() == 3);
  CHECK(source->classes() == 5);
  CHECK(source->description() == "2 images 1x2x3, 5 classes (IDX, images.idx)");

  std::vector<float> values(6);
  CHECK(source->read_image(0, values.data()) == 4);
  const std::vector<float> expected = {
      -1.0F, 1.0F / 127.5F - 1.0F, 2.0F / 127.5F - 1.0F, 127.0F / 127.5F - 1.0F, 128.0F / 127.5F - 1.0F,
      1.0F};
  CHECK(values == expected);
  CHECK(source->read_image(1, values.data()) == 1);
  CHECK(values[5] == 15.0F / 127.5F - 1.0F);
  CHECK_THROWS_AS(source->read_image(2, values.data()), std::out_of_range);
  CHECK_THROWS_AS(source->read_image(-1, values.data()), std::out_of_range);
}

TEST_CASE("idx: a missing file is named") {
  const TemporaryFolder folder;
  const auto good = folder.write("labels", labels);
  const auto missing = folder / "missing";
  CHECK(error_text<DataError>([&] { open_idx(missing, good); }) ==
        missing.string() + ": no such file; check the path");
  CHECK(error_text<DataError>([&] { open_idx(good, missing); }) ==
        missing.string() + ": no such file; check the path");
}

TEST_CASE("idx: files that are not IDX") {
  CHECK(image_error("PNG or something") ==
        "not an IDX file of images: it starts with 0x504e4720, allowed is 0x00000803; name a file of images");
  CHECK(image_error(labels) ==
        "not an IDX file of images: it starts with 0x00000801, allowed is 0x00000803; name a file of images");
  CHECK(image_error("") == "ends after 0 bytes, inside the IDX header of 16 bytes; get the file again");
  CHECK(image_error(images.substr(0, 15)) ==
        "ends after 15 bytes, inside the IDX header of 16 bytes; get the file again");

  const TemporaryFolder folder;
  const auto path = folder.write("images", images);
  CHECK(error_text<DataError>([&] { open_idx(path, path); }) ==
        path.string() +
            ": not an IDX file of labels: it starts with 0x00000803, allowed is 0x00000801; name a file of "
            "labels");
}

TEST_CASE("idx: headers that promise the impossible are refused before anything is read") {
  constexpr uint32_t most = 0xffffffff;
  CHECK(image_error(big_endian({image_magic, most, most, most}) + pixels) ==
        "its header says 4294967295x4294967295x4294967295, more bytes than 64 bits can count; the header is "
        "damaged; get the file again");
  CHECK(image_error(big_endian({image_magic, 2, most, most}) + pixels) ==
        "its header says 2x4294967295x4294967295, more bytes than 64 bits can count; the header is damaged; "
        "get the file again");
  CHECK(
      image_error(big_endian({image_magic, 1, most, most}) + pixels) ==
      "its header says 1x4294967295x4294967295 = 18446744065119617025 bytes, but 12 bytes follow it; get the "
      "file again");
  CHECK(image_error(big_endian({image_magic, 2, 2, 4}) + pixels) ==
        "its header says 2x2x4 = 16 bytes, but 12 bytes follow it; get the file again");
  const std::string packed = gzip(big_endian({image_magic, 1000, 1000, 1000}) + pixels);
  CHECK(image_error(packed) == "its header says 1000x1000x1000 = 1000000000 bytes, but no gzip file of " +
                                   std::to_string(packed.size()) +
                                   " bytes unpacks to that many; get the file "
                                   "again");
  CHECK(image_error(big_endian({image_magic, 0, 2, 3})) ==
        "its header says 0x2x3; every size must be at least 1; get the file again");
  CHECK(image_error(big_endian({image_magic, 2, 0, 3}) + pixels) ==
        "its header says 2x0x3; every size must be at least 1; get the file again");
}

TEST_CASE("idx: files shorter or longer than their header says") {
  CHECK(image_error(gzip(images.substr(0, images.size() - 1))) ==
        "its header says 12 bytes follow, but the data ends after 11; get the file again");
  CHECK(image_error(images + "x") == "holds more than the 12 bytes that its header says; get the file again");
  CHECK(image_error(gzip(images + "x")) ==
        "holds more than the 12 bytes that its header says; get the file again");
}

TEST_CASE("idx: a gzip bomb is refused at its first byte too many") {
  // The bomb's end is cut off: reading on would find that, and report it instead.
  std::string bomb = gzip(images + std::string(100'000'000, '\0'));
  REQUIRE(bomb.size() < 200'000);
  bomb.resize(bomb.size() / 2);
  CHECK(image_error(bomb) == "holds more than the 12 bytes that its header says; get the file again");
}

TEST_CASE("idx: damaged gzip is named") {
  const std::string packed = gzip(images);
  CHECK(image_error(packed.substr(0, packed.size() - 1)) ==
        "the gzip data ends too early (" + std::to_string(packed.size() - 1) +
            " bytes in the file); it is truncated, get the file again");
  std::string wrong = packed;
  wrong[wrong.size() - 8] ^= 1;
  CHECK(image_error(wrong) == "the gzip data is corrupt (incorrect data check); get the file again");
  CHECK(image_error(gzip(images.substr(0, 20)) + "\x1f_" + gzip(images.substr(20)).substr(2)) ==
        "its header says 12 bytes follow, but the data ends after 4; get the file again");
}

TEST_CASE("idx: images and labels that do not belong together") {
  const TemporaryFolder folder;
  const auto image_path = folder.write("images", images);
  const auto label_path = folder.write("labels", big_endian({label_magic, 3}) + "abc");
  CHECK(error_text<DataError>([&] { open_idx(image_path, label_path); }) ==
        label_path.string() + ": holds 3 labels, but " + image_path.string() +
            " holds 2 images; give two files of one set");
}

TEST_CASE("idx: Fashion-MNIST as its Debian package ships it") {
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: " << folder.string() << " does not exist (Debian package dataset-fashion-mnist)");
    return;
  }
  const auto source = open_idx(folder / "train-images-idx3-ubyte.gz", folder / "train-labels-idx1-ubyte.gz");
  CHECK(source->description() == "60000 images 1x28x28, 10 classes (IDX, train-images-idx3-ubyte.gz)");
  std::vector<float> values(28 * 28);
  std::vector<int64_t> first_labels;
  for (int64_t i = 0; i < 5; ++i) first_labels.push_back(source->read_image(i, values.data()));
  CHECK(first_labels == std::vector<int64_t>{9, 0, 0, 3, 0});

  // Pixels of the whole set have the mean 0.2860 in [0, 1], as published for it.
  double sum = 0;
  for (int64_t i = 0; i < source->size(); ++i) {
    source->read_image(i, values.data());
    for (const float value : values) sum += value;
  }
  CHECK(sum / (60000.0 * 28 * 28) == Approx(2 * 0.2860 - 1).margin(1e-4));
}
