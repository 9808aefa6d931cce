#include "toolkit/data/image_folder.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/gzip.h"
#include "support/files/temporary_folder.h"
#include "support/files/zip_bytes.h"
#include "support/fixture.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/image.h"

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

std::vector<float> values_of(const dtk::ImageSource& source, int64_t index) {
  std::vector<float> values(static_cast<size_t>(source.channels() * source.height() * source.width()));
  source.read_image(index, values.data());
  return values;
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
    labels.push_back(source->read_image(i, values.data()));
    first_values.push_back(values[0]);
  }
  CHECK(labels == std::vector<int64_t>{0, 1, 1});
  CHECK(first_values ==
        std::vector<float>{10.0F / 127.5F - 1.0F, 20.0F / 127.5F - 1.0F, 30.0F / 127.5F - 1.0F});
}

TEST_CASE("image folder: classes are counted as people do, and keep their names") {
  const TemporaryFolder folder;
  folder.write("10/1.png", png(1, 2, 3, 30));
  folder.write("9/1.png", png(1, 2, 3, 20));
  folder.write("a\x1b[2J/2.png", png(1, 2, 3, 10));
  folder.write("a\x1b[2J/1.png", png(1, 2, 3, 10));
  const auto source = open_image_folder(folder.path(), grey_2x3);
  CHECK(source->class_names() == std::vector<std::string>{"9", "10", "a\\x1b[2J"});
  CHECK(source->sample_name(0) == "9/1.png");
  CHECK(source->sample_name(3) == "a\x1b[2J/2.png");
  const dtk::DataIdentity before = source->identity();
  REQUIRE(before.classes.size() == 3);
  CHECK(before.classes[1].name == "10");
  CHECK(before.classes[2].samples == 2);
  CHECK(differences(before, open_image_folder(folder.path(), grey_2x3)->identity()).empty());

  std::filesystem::rename(folder / "10", folder / "8");
  CHECK(differences(before, open_image_folder(folder.path(), grey_2x3)->identity()) ==
        std::vector<std::string>{"class \"10\" is called \"8\"", "class \"9\" had the label 0 and has 1"});
}

TEST_CASE("image folder: a corrupt image that is skipped is none of its class") {
  const TemporaryFolder folder;
  folder.write("a/1.png", png(1, 2, 3, 30));
  folder.write("a/2.png", png(1, 2, 3, 30).substr(0, 20));
  folder.write("a/3.png", png(1, 2, 3, 40));
  const auto source = open_image_folder(folder.path(), grey_2x3, {.skip_corrupt = true});
  REQUIRE(source->size() == 2);
  CHECK(source->sample_name(1) == "a/3.png");
  CHECK(values_of(*source, 1)[0] == 40.0F / 127.5F - 1.0F);
  CHECK(source->identity().classes[0].samples == 2);
}

TEST_CASE("image folder: colours come as (C, H, W)") {
  const TemporaryFolder folder;
  folder.write("a/1.png", png(3, 1, 2, 0));  // (H, W, C): 0 1 2, 3 4 5
  const auto source = open_image_folder(folder.path(), {.channels = 3, .height = 1, .width = 2});
  std::vector<float> values(6);
  source->read_image(0, values.data());
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
        (folder / "b").string() + ": the class folder has no image; add images or remove it");
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
  CHECK(unfit("2.png", png(3, 2, 3, 0)) ==
        "the image has 3 channels; allowed: 1, as model.channels says; convert it, or set model.channels = "
        "3, for which all are converted");
  CHECK(unfit("2.png", png(2, 2, 3, 0)) ==
        "the image has 2 channels; allowed: 1, as model.channels says; convert it, or set model.channels = "
        "3, for which all are converted");
  CHECK(unfit("2.png", png(1, 1, 1, 0)) ==
        "the image is a single pixel, which stands for no picture; remove it");
  CHECK(unfit("2.png", "no image") ==
        "cannot be decoded (unknown image type); allowed: PNG, JPEG, WebP and BMP; replace or remove it");
  const dtk::test::Fixture files = dtk::test::read_fixture("encoded_images");
  const auto encoded = [&](const std::string& name) {
    const at::Tensor bytes = files.at(name);
    return std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  };
  CHECK(unfit("2.png", encoded("grey16.png")) ==
        "has 16 bits per channel; allowed: 8 with data.convert = \"none\"; convert it to 8 bits per channel, "
        "or set data.convert = \"rgb\" with model.channels = 3");
  CHECK(unfit("2.jpg", encoded("cmyk.jpg")) ==
        "is a JPEG of 4 components (CMYK); allowed: 1 (grey) or 3 (colour); convert it to RGB, or set "
        "data.convert = \"rgb\" with model.channels = 3");
  CHECK(unfit("2.png", "") ==
        "cannot be decoded (the file is empty); allowed: PNG, JPEG, WebP and BMP; replace or remove it");
  const auto link = folder / "a/moved.png";
  std::filesystem::create_symlink(folder / "elsewhere.png", link);
  CHECK(folder_error(folder.path()) ==
        link.string() + ": a link to a file that is not there; restore the file, or remove the link");
  folder.write("elsewhere.png", png(1, 2, 3, 0));
  CHECK(open_image_folder(folder.path(), grey_2x3)->size() == 2);
  std::filesystem::remove(link);
  REQUIRE(::mkfifo(link.c_str(), 0600) == 0);
  CHECK(folder_error(folder.path()) ==
        link.string() + ": not a file that can be read as a whole; a class folder may hold only images");
}

TEST_CASE("image folder: images of other sizes are resized and cropped, those that fit are not touched") {
  constexpr dtk::ImageSize grey_4x4{.channels = 1, .height = 4, .width = 4};
  const TemporaryFolder folder;
  folder.write("a/1.png", png(1, 4, 4, 0));
  folder.write("a/2.png", png(1, 9, 13, 0));
  const auto source = open_image_folder(folder.path(), grey_4x4);
  CHECK(source->description() ==
        "2 images 1x4x4, 1 classes (image folder, " + folder.path().filename().string() + ")");
  std::vector<float> exact;
  for (int i = 0; i < 16; ++i) exact.push_back(static_cast<float>(i) / 127.5F - 1.0F);
  CHECK(values_of(*source, 0) == exact);
  std::vector<float> resized;
  for (const uint8_t byte : dtk::resize_and_crop(dtk::decode_image(png(1, 9, 13, 0), ""), 4).pixels) {
    resized.push_back(static_cast<float>(byte) / 127.5F - 1.0F);
  }
  CHECK(values_of(*source, 1) == resized);
}

TEST_CASE("image folder: threads change nothing, and what is wrong with files is told together") {
  const TemporaryFolder folder;
  for (int i = 100; i < 140; ++i) {
    folder.write("a/" + std::to_string(i) + ".png", png(1, 5 + i % 3, 7, static_cast<uint8_t>(i)));
  }
  constexpr dtk::ImageSize grey_4x4{.channels = 1, .height = 4, .width = 4};
  const auto one = open_image_folder(folder.path(), grey_4x4, {.threads = 1});
  const auto four = open_image_folder(folder.path(), grey_4x4, {.threads = 4});
  for (int64_t i = 0; i < one->size(); ++i) CHECK(values_of(*one, i) == values_of(*four, i));
  for (const int bad : {117, 118, 119, 131}) folder.write("a/" + std::to_string(bad) + ".png", "no image");
  const std::string reason =
      "cannot be decoded (unknown image type); allowed: PNG, JPEG, WebP and BMP; replace or remove it";
  std::string expected = folder.path().string() + ": 4 files cannot be used:";
  for (const int bad : {117, 118, 119, 131})
    expected += "\n  " + (folder / "a" / (std::to_string(bad) + ".png")).string() + ": " + reason;
  for (int again = 0; again < 20; ++again)
    CHECK(error_text<DataError>([&] { open_image_folder(folder.path(), grey_4x4, {.threads = 4}); }) ==
          expected);
  for (int bad = 100; bad < 125; ++bad) folder.write("a/" + std::to_string(bad) + ".png", "no image");
  const std::string many =
      error_text<DataError>([&] { open_image_folder(folder.path(), grey_4x4, {.threads = 4}); });
  CHECK(many.starts_with(folder.path().string() + ": 26 files cannot be used:\n"));
  CHECK(std::count(many.begin(), many.end(), '\n') == 21);
  CHECK(many.ends_with("\n  and 6 more"));
}

TEST_CASE("image folder: what is damaged behind its header is told together, too") {
  const TemporaryFolder folder;
  const std::string good = png(1, 2, 3, 50);
  folder.write("a/1.png", good);
  for (const char* bad : {"a/2.png", "a/3.png"}) folder.write(bad, good.substr(0, good.size() - 5));
  const std::string reason =
      ".png: cannot be decoded (it ends too early); allowed: PNG, JPEG, WebP and BMP; replace or remove it";
  CHECK(folder_error(folder.path()) == folder.path().string() + ": 2 files cannot be used:\n  " +
                                           (folder / "a/2").string() + reason + "\n  " +
                                           (folder / "a/3").string() + reason);
}

TEST_CASE("image folder: what else lies among the images is passed over and counted, unless it is strict") {
  const TemporaryFolder folder;
  folder.write("a/1.PNG", png(1, 2, 3, 10));
  folder.write("a/1.txt", "a caption");
  folder.write("a/Thumbs.db", "");
  folder.write("a/.hidden", "");
  folder.write("a/2020/summer/3.png", png(1, 2, 3, 20));
  folder.write("b/1.png", png(1, 2, 3, 30));
  folder.write("elsewhere/1.png", png(1, 2, 3, 30));
  std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "b/link");
  const auto source = open_image_folder(folder.path(), grey_2x3);
  REQUIRE(source->size() == 4);
  CHECK(source->sample_name(0) == "a/1.PNG");
  CHECK(source->sample_name(1) == "a/2020/summer/3.png");
  CHECK(source->remarks().passed_over == 3);
  CHECK(source->remarks().first_passed_over == (folder / "a/1.txt").string());

  const std::string strict =
      error_text<DataError>([&] { open_image_folder(folder.path(), grey_2x3, {.strict = true}); });
  const std::string not_an_image =
      ": not an image; with data.strict_folder = true a class folder may hold only .png, .jpg, .jpeg, .webp "
      "and .bmp files";
  CHECK(strict == folder.path().string() + ": 4 files cannot be used:\n  " + (folder / "a/1.txt").string() +
                      not_an_image + "\n  " + (folder / "a/2020").string() + not_an_image + "\n  " +
                      (folder / "a/Thumbs.db").string() + not_an_image + "\n  " +
                      (folder / "b/link").string() + not_an_image);
}

TEST_CASE("image folder: pictures as people have them become RGB") {
  constexpr dtk::ImageSize rgb{.channels = 3, .height = 10, .width = 12};
  const TemporaryFolder folder;
  const dtk::test::Fixture files = dtk::test::read_fixture("converted_images");
  const auto bytes_of = [&](const std::string& name) {
    const at::Tensor bytes = files.at(name);
    return std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  };
  for (const char* name : {"alpha.png", "alpha.webp", "cmyk.jpg", "grey.jpg", "grey.png", "grey16.png",
                           "grey_alpha.png", "lossless.webp", "lossy.webp", "palette_alpha.png"})
    folder.write(std::string("a/") + name, bytes_of(name));
  const auto source = open_image_folder(folder.path(), rgb, {.convert = dtk::Convert::rgb});
  REQUIRE(source->size() == 10);
  for (int64_t i = 0; i < source->size(); ++i) {
    const std::string name = source->sample_name(i).substr(2);
    INFO(name);
    const at::Tensor expected = files.at(name + ".rgb").permute({2, 0, 1}).to(at::kFloat) / 127.5F - 1.0F;
    at::Tensor seen = at::empty({3, 10, 12});
    source->read_image(i, seen.data_ptr<float>());
    CHECK((seen - expected).abs().max().item<float>() * 127.5F < 0.5F);  // to the byte
  }
  const auto animated = folder.write("a/animated.webp", bytes_of("animated.webp"));
  CHECK(
      error_text<DataError>([&] { open_image_folder(folder.path(), rgb, {.convert = dtk::Convert::rgb}); }) ==
      animated.string() + ": is an animation; allowed: a single picture; take one of it, or remove it");
}

TEST_CASE("image folder: corrupt files may be skipped, and are told of") {
  const TemporaryFolder folder;
  const auto open = [&] {
    return open_image_folder(folder.path(), grey_2x3, {.skip_corrupt = true, .threads = 2});
  };
  const std::string good = png(1, 2, 3, 50);
  folder.write("a/1.png", "");
  folder.write("a/2.png", good);
  folder.write("a/3.png", good.substr(0, good.size() - 5));
  folder.write("b/1.png", png(1, 1, 1, 0));
  folder.write("b/2.png", "no image");
  folder.write("b/3.png", png(1, 2, 3, 60));
  const auto source = open();
  CHECK(source->size() == 2);
  CHECK(source->classes() == 2);
  CHECK(values_of(*source, 0)[0] == 50.0F / 127.5F - 1.0F);
  CHECK(values_of(*source, 1)[0] == 60.0F / 127.5F - 1.0F);
  std::vector<float> out(6);
  CHECK(source->read_image(1, out.data()) == 1);
  const dtk::DataRemarks remarks = source->remarks();
  CHECK(remarks.skipped == 4);
  CHECK(remarks.reasons ==
        std::vector<std::string>{
            (folder / "a/1.png").string() + ": cannot be decoded (the file is empty); allowed: PNG, JPEG, "
                                            "WebP and BMP; replace or remove it",
            (folder / "a/3.png").string() + ": cannot be decoded (it ends too early); allowed: PNG, JPEG, "
                                            "WebP and BMP; replace or remove it",
            (folder / "b/1.png").string() +
                ": the image is a single pixel, which stands for no picture; remove it"});

  // Whole files of another kind are no corrupt ones.
  folder.write("b/4.png", png(3, 2, 3, 0));
  CHECK(error_text<DataError>(open) ==
        (folder / "b/4.png").string() +
            ": the image has 3 channels; allowed: 1, as model.channels says; convert it, or set "
            "model.channels = 3, for which all are converted");
  std::filesystem::remove(folder / "b/4.png");
  const dtk::test::Fixture files = dtk::test::read_fixture("encoded_images");
  const auto refused = [&](const std::string& name, const std::string& file) {
    const at::Tensor bytes = files.at(file);
    const auto path = folder.write(name, {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
    const std::string text = error_text<DataError>(open);
    std::filesystem::remove(path);
    return text;
  };
  CHECK(refused("b/4.png", "grey16.png") ==
        (folder / "b/4.png").string() +
            ": has 16 bits per channel; allowed: 8 with data.convert = \"none\"; convert it to 8 bits per "
            "channel, or set data.convert = \"rgb\" with model.channels = 3");
  CHECK(refused("b/4.jpg", "cmyk.jpg") ==
        (folder / "b/4.jpg").string() +
            ": is a JPEG of 4 components (CMYK); allowed: 1 (grey) or 3 (colour); convert it to RGB, or set "
            "data.convert = \"rgb\" with model.channels = 3");
  CHECK_NOTHROW(open());
  std::filesystem::remove(folder / "b/3.png");
  CHECK(error_text<DataError>(open) ==
        (folder / "b").string() +
            ": no image of this class folder can be decoded; replace them or remove the folder");
}

TEST_CASE("image folder: absurd sizes are refused before anything is decoded") {
  const TemporaryFolder folder;
  std::string huge = png(1, 2, 3, 0);
  huge.replace(16, 8, dtk::test::big_endian({20'000, 20'000}));
  huge.replace(29, 4, dtk::test::big_endian({dtk::test::crc_of(huge.substr(12, 17))}));
  const auto path = folder.write("a/1.png", huge);
  CHECK(folder_error(folder.path()) ==
        path.string() + ": the image has 20000 x 20000 pixels; allowed: up to 100000000; make it smaller");
}

TEST_CASE("image folder: more images than the memory holds are refused before they are decoded") {
  const TemporaryFolder folder;
  for (int i = 0; i < 8; ++i) folder.write("a/" + std::to_string(i) + ".png", png(1, 2, 3, 0));
  const dtk::ImageSize huge{.channels = 1, .height = int64_t{1} << 20, .width = int64_t{1} << 20};  // 1 TiB
  const std::string text = error_text<dtk::Error>([&] { open_image_folder(folder.path(), huge); });
  CHECK(text.starts_with("8 images 1x1048576x1048576 take 8192.00 GiB of memory, and "));
  CHECK(
      text.ends_with(" are available; train on fewer or smaller images, or on latents (data.kind = "
                     "\"latents\"), which stay in their file"));
}

TEST_CASE("image folder: how far the looking and the decoding are is told on the calling thread") {
  const TemporaryFolder folder;
  for (int i = 0; i < 24; ++i) {
    folder.write("set/" + std::to_string(i % 2) + "/" + std::to_string(i) + ".png",
                 png(1, 2, 3, static_cast<uint8_t>(i)));
  }
  for (const int threads : {1, 4}) {
    std::vector<std::pair<std::string, int64_t>> told;
    const std::thread::id caller = std::this_thread::get_id();
    dtk::ImageFolderOptions options{.threads = threads};
    options.progress = [&](const char* what, int64_t done, int64_t all) {
      CHECK(std::this_thread::get_id() == caller);
      CHECK(all == 24);
      told.emplace_back(what, done);
    };
    open_image_folder(folder / "set", grey_2x3, options);
    for (const std::string what : {"looking at pictures", "decoding pictures"}) {
      std::vector<int64_t> done;
      for (const auto& [name, count] : told)
        if (name == what) done.push_back(count);
      REQUIRE(done.size() >= 2);
      CHECK(done.front() == 0);
      CHECK(done.back() == 24);
      CHECK(std::is_sorted(done.begin(), done.end()));
    }
  }
}
