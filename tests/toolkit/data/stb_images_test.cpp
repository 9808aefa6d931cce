// Decoding where neither libjpeg nor libpng is: stb_image behind its guards.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/data/image.h"

namespace {

namespace fs = std::filesystem;

const fs::path corpus = DTK_SOURCE_DIR "/tests/fuzz/corpus/images";

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string decoding_error(const std::string& encoded) {
  return dtk::test::error_text<dtk::DataError>([&] { dtk::decode_image(encoded, "a"); });
}

std::string cannot(const std::string& reason) {
  return "a: cannot be decoded (" + reason + "); allowed: PNG, JPEG and BMP; replace or remove it";
}

}  // namespace

TEST_CASE("stb images: files that the decoder would run out of its memory with are refused") {
  CHECK(decoding_error(bytes_of(corpus / "jpeg_dht_overflow.jpg")) ==
        cannot("a table has more than 256 Huffman codes"));
  CHECK(decoding_error(bytes_of(corpus / "jpeg_no_dqt.jpg")) ==
        cannot("a scan comes before its quantization table"));
  CHECK(decoding_error(bytes_of(corpus / "jpeg_no_dht.jpg")) ==
        cannot("a scan comes before its Huffman table"));
  CHECK(decoding_error(bytes_of(corpus / "truncated_os2.bmp")) == cannot("it ends too early"));
  CHECK(decoding_error(bytes_of(corpus / "png_data_bomb.png")) ==
        cannot("it holds more data than its picture"));
}

TEST_CASE("stb images: whole files are decoded, alike each time") {
  int decoded = 0;
  for (const char* name : {"rgb.jpg", "progressive.jpg", "restarts.jpg", "grey.jpg", "rgb.bmp", "palette.png",
                           "interlaced.png", "grey_alpha.png"}) {
    INFO(name);
    const std::string encoded = bytes_of(corpus / name);
    const dtk::Image image = dtk::decode_image(encoded, name);
    CHECK(dtk::decode_image(encoded, name).pixels == image.pixels);
    CHECK(dtk::encoded_image_size(encoded, name) ==
          dtk::ImageSize{.channels = image.channels, .height = image.height, .width = image.width});
    ++decoded;
  }
  CHECK(decoded == 8);
}

TEST_CASE("stb images: whatever the corpus holds is decoded or refused") {
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(corpus)) {
    INFO(entry.path());
    ++files;
    try {
      const dtk::Image image = dtk::decode_image(bytes_of(entry.path()), "a");
      CHECK(image.height * image.width * image.channels == static_cast<int64_t>(image.pixels.size()));
    } catch (const dtk::DataError& error) {
      CHECK(std::string(error.what()).starts_with("a: "));
    }
  }
  CHECK(files > 10);
}
