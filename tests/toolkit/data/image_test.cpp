#include "toolkit/data/image.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/gzip.h"
#include "support/fixture.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

using dtk::DataError;
using dtk::Image;
using dtk::test::error_text;

namespace {

// Who decodes JPEG and PNG; in the words of each, what is wrong with a file.
#ifdef DTK_IMAGE_LIBRARIES
constexpr bool kLibraries = true;
constexpr char kManyCodes[] = "Bogus Huffman table definition";
constexpr char kNoQuantization[] = "Quantization table 0x00 was not defined";
constexpr int kFromPillow = 0;
#else
constexpr bool kLibraries = false;
constexpr char kManyCodes[] = "a table has more than 256 Huffman codes";
constexpr char kNoQuantization[] = "a scan comes before its quantization table";
constexpr int kFromPillow = 4;
#endif

Image gradient(int64_t channels) {
  Image image{.height = 5, .width = 7, .channels = channels, .pixels = {}};
  for (int64_t i = 0; i < 35 * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37));
  return image;
}

/// A 16-bit grey PNG of one pixel: signature, IHDR and nothing else; the header is all that is looked at.
const std::string png_16_bit(
    "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\1\0\0\0\1\x10\0\0\0\0\x6a\xee\x47\x16\0\0\0\0IDAT\0\0\0\0", 45);

Image image_grid(const at::Tensor& samples, int64_t columns, int64_t padding, int64_t scale) {
  const dtk::UnpaintedImage grid = dtk::image_grid(samples, columns, padding, scale);
  Image painted = grid.paint();
  CHECK(grid.size ==
        dtk::ImageSize{.channels = painted.channels, .height = painted.height, .width = painted.width});
  return painted;
}

}  // namespace

TEST_CASE("image: PNG there and back keeps every pixel") {
  const auto channels = GENERATE(1, 2, 3, 4);
  const Image image = gradient(channels);
  const std::string encoded = dtk::encode_png(image);
  CHECK(encoded.substr(1, 3) == "PNG");
  CHECK(dtk::encoded_image_size(encoded, "x.png") ==
        dtk::ImageSize{.channels = channels, .height = 5, .width = 7});
  const Image decoded = dtk::decode_image(encoded, "x.png");
  CHECK(decoded.height == 5);
  CHECK(decoded.width == 7);
  CHECK(decoded.channels == channels);
  CHECK(decoded.pixels == image.pixels);
}

TEST_CASE("image: which sizes a PNG is written with") {
  CHECK(dtk::fits_png({.channels = 1, .height = 46'000, .width = 46'000}));
  CHECK_FALSE(dtk::fits_png({.channels = 1, .height = 47'000, .width = 47'000}));
  CHECK_FALSE(dtk::fits_png({.channels = 3, .height = 46'000, .width = 46'000}));
  CHECK_FALSE(dtk::fits_png({.channels = 1, .height = 0, .width = 1}));
}

TEST_CASE("image: what cannot be encoded is refused") {
  Image image = gradient(1);
  image.pixels.pop_back();
  CHECK(error_text<std::invalid_argument>([&] { dtk::encode_png(image); }) ==
        "encode_png: 34 bytes cannot be an image of 5 x 7 pixels with 1 channels");
  CHECK_THROWS_AS(dtk::encode_png(Image{}), std::invalid_argument);
}

TEST_CASE("image: what cannot be decoded is named") {
  const auto decoding_error = [](const std::string& encoded) {
    return error_text<DataError>([&] { dtk::decode_image(encoded, "a/b.png"); });
  };
  CHECK(decoding_error("") ==
        "a/b.png: cannot be decoded (the file is empty); allowed: PNG, JPEG, WebP and BMP; replace or remove "
        "it");
  CHECK(decoding_error("neither this nor that") ==
        "a/b.png: cannot be decoded (unknown image type); allowed: PNG, JPEG, WebP and BMP; replace or "
        "remove it");
  const std::string encoded = dtk::encode_png(gradient(3));
  CHECK(decoding_error(encoded.substr(0, encoded.size() / 2)).starts_with("a/b.png: cannot be decoded ("));
  CHECK(decoding_error(png_16_bit) ==
        "a/b.png: has 16 bits per channel; allowed: 8 with data.convert = \"none\"; convert it to 8 bits per "
        "channel, or set data.convert = \"rgb\" with model.channels = 3");
}

namespace {

/// Small files that Pillow wrote.
std::string encoded_image(const std::string& name) {
  static const dtk::test::Fixture files = dtk::test::read_fixture("encoded_images");
  const at::Tensor bytes = files.at(name);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

/// Little-endian numbers of 32 bits.
std::string test_little(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(number >> shift & 0xff));
  }
  return bytes;
}

std::string decoding_error(const std::string& encoded) {
  return error_text<DataError>([&] { dtk::decode_image(encoded, "a"); });
}

}  // namespace

TEST_CASE("image: JPEG, BMP and PNG of other programs are decoded") {
  for (const std::string name : {"rgb.jpg", "progressive.jpg", "restarts.jpg", "rgb.bmp", "palette.png"}) {
    INFO(name);
    const Image image = dtk::decode_image(encoded_image(name), name);
    CHECK(image.channels == 3);
    CHECK(image.pixels.size() == 16 * 16 * 3);
  }
  CHECK(dtk::decode_image(encoded_image("grey.jpg"), "").channels == 1);
}

TEST_CASE("image: CMYK and 16 bits are refused") {
  CHECK(decoding_error(encoded_image("cmyk.jpg")) ==
        "a: is a JPEG of 4 components (CMYK); allowed: 1 (grey) or 3 (colour); convert it to RGB, or set "
        "data.convert = \"rgb\" with model.channels = 3");
  CHECK(decoding_error(encoded_image("grey16.png")) ==
        "a: has 16 bits per channel; allowed: 8 with data.convert = \"none\"; convert it to 8 bits per "
        "channel, or set data.convert = \"rgb\" with model.channels = 3");
}

TEST_CASE("image: a file that was cut anywhere is refused") {
  for (const std::string name :
       {"rgb.jpg", "progressive.jpg", "restarts.jpg", "grey.jpg", "rgb.bmp", "palette.png"}) {
    INFO(name);
    const std::string whole = encoded_image(name);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      INFO(bytes << " of " << whole.size());
      CHECK(decoding_error(whole.substr(0, bytes)).starts_with("a: cannot be decoded ("));
    }
    CHECK(decoding_error(whole) == "(nothing was thrown)");
  }
  const std::string jpeg = encoded_image("rgb.jpg");
  CHECK(decoding_error(jpeg.substr(0, jpeg.size() - 1)) ==
        "a: cannot be decoded (it ends too early); allowed: PNG, JPEG, WebP and BMP; replace or remove it");
}

namespace {

/// Files of 6 x 10 pixels with an Exif block of either byte order, and what Pillow makes of them.
const dtk::test::Fixture& oriented() {
  static const dtk::test::Fixture files = dtk::test::read_fixture("exif_orientation");
  return files;
}

std::string oriented_jpeg(const std::string& name) {
  const at::Tensor bytes = oriented().at(name);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

/// The largest difference of a value; 255 where the sizes differ.
int difference(const Image& image, const at::Tensor& expected) {
  if (expected.size(0) != image.height || expected.size(1) != image.width) return 255;
  int most = 0;
  const auto* values = expected.const_data_ptr<uint8_t>();
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    most = std::max(most, std::abs(static_cast<int>(image.pixels[i]) - static_cast<int>(values[i])));
  }
  return most;
}

}  // namespace

TEST_CASE("image: a JPEG is turned as its camera was held") {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const at::Tensor expected = oriented().at("upright" + std::to_string(orientation));
    for (const std::string order : {"II", "MM"}) {
      const std::string name = order + std::to_string(orientation) + ".jpg";
      INFO(name);
      const std::string encoded = oriented_jpeg(name);
      const Image image = dtk::decode_image(encoded, name);
      CHECK(difference(image, expected) <= kFromPillow);
      CHECK(dtk::encoded_image_size(encoded, name) ==
            dtk::ImageSize{.channels = 3, .height = image.height, .width = image.width});
      for (int other = 1; other <= 8; ++other) {
        if (other != orientation)
          CHECK(difference(image, oriented().at("upright" + std::to_string(other))) > 40);
      }
    }
  }
}

TEST_CASE("image: a JPEG without a readable Exif block is as it is stored") {
  const std::string plain = oriented_jpeg("none.jpg"), turned = oriented_jpeg("MM6.jpg");
  const std::vector<uint8_t> stored = dtk::decode_image(plain, "").pixels;
  CHECK(dtk::decode_image(oriented_jpeg("II1.jpg"), "").pixels == stored);
  const size_t tiff = turned.find("MM"), tag = turned.find(std::string("\x01\x12\0\x03", 4));
  REQUIRE(tag != std::string::npos);
  const auto changed = [&](size_t at, const std::string& bytes) {
    std::string text = turned;
    text.replace(at, bytes.size(), bytes);
    return dtk::decode_image(text, "").pixels;
  };
  CHECK(changed(tag + 8, std::string("\0\0", 2)) == stored);  // no orientation has this number
  CHECK(changed(tag + 8, std::string("\0\x09", 2)) == stored);
  CHECK(changed(tag + 2, std::string("\0\x04", 2)) == stored);         // of another type
  CHECK(changed(tag + 4, std::string("\0\0\0\x02", 4)) == stored);     // more than one
  CHECK(changed(tag, std::string("\x01\x13", 2)) == stored);           // another tag
  CHECK(changed(tiff, "XX") == stored);                                // no byte order
  CHECK(changed(tiff + 4, "\xff\xff\xff\xff") == stored);              // a directory beyond the block
  CHECK(changed(tiff - 6, "exif") == stored);                          // a block of somebody else's
  CHECK(changed(tiff + 4, std::string("\0\0\0\x24", 4)) == stored);    // at its last bytes
  CHECK(changed(tiff, "MM") == dtk::decode_image(turned, "").pixels);  // the check above can fail
  CHECK(dtk::decode_image(turned, "").pixels != stored);
}

TEST_CASE("image: no byte of an Exif block leads out of it") {
  const std::string whole = oriented_jpeg("II8.jpg");
  const size_t begin = whole.find("Exif"), end = begin + 6 + 8 + 2 + 24 + 4;
  for (size_t at = begin; at < end; ++at) {
    for (const int value : {0, 1, 0x7f, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      CHECK(dtk::decode_image(damaged, "").pixels.size() == 6 * 10 * 3);
    }
  }
}

TEST_CASE("image: a PNG with a changed byte is refused") {
  const std::string whole = dtk::encode_png(gradient(3));
  for (size_t at = 0; at < whole.size(); ++at) {
    INFO(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK_THROWS_AS(dtk::decode_image(damaged, "a"), DataError);
  }
  std::string damaged = whole;
  damaged[whole.size() - 20] = static_cast<char>(damaged[whole.size() - 20] ^ 1);
  CHECK(decoding_error(damaged) ==
        "a: cannot be decoded (a checksum differs); allowed: PNG, JPEG, WebP and BMP; replace or remove it");
}

TEST_CASE("image: a BMP's sides are looked at, which the decoder does not do") {
  const std::string whole = encoded_image("rgb.bmp");
  const auto with_side = [&](size_t at, int32_t side) {
    std::string changed = whole;
    for (size_t byte = 0; byte < 4; ++byte) changed[at + byte] = static_cast<char>(side >> (8 * byte) & 0xff);
    return changed;
  };
  constexpr size_t kWidth = 18, kHeight = 22;
  const dtk::ImageSize size = dtk::encoded_image_size(whole, "a");
  const std::string allowed = " pixels); allowed: PNG, JPEG, WebP and BMP; replace or remove it";
  CHECK(decoding_error(with_side(kWidth, 0)) ==
        "a: cannot be decoded (its header says " + std::to_string(size.height) + " x 0" + allowed);
  CHECK(decoding_error(with_side(kWidth, -8)) ==
        "a: cannot be decoded (its header says " + std::to_string(size.height) + " x -8" + allowed);
  CHECK(decoding_error(with_side(kHeight, 0)) ==
        "a: cannot be decoded (its header says 0 x " + std::to_string(size.width) + allowed);
  // Rows from the top down: the same size, the same rows in the other order.
  const std::string down = with_side(kHeight, -static_cast<int32_t>(size.height));
  CHECK(dtk::encoded_image_size(down, "a") == size);
  const Image up_image = dtk::decode_image(whole, "a"), down_image = dtk::decode_image(down, "a");
  const auto row_bytes = static_cast<std::ptrdiff_t>(size.width * size.channels);
  for (int64_t row = 0; row < size.height; ++row) {
    const auto a = up_image.pixels.begin() + row * row_bytes;
    const auto b = down_image.pixels.begin() + (size.height - 1 - row) * row_bytes;
    CHECK(std::equal(a, a + row_bytes, b));
  }
}

namespace {

/// Of tests/fuzz: files that harmed a reader once.
std::string hostile_image(const std::string& name) {
  return dtk::posix_file_system().read(DTK_SOURCE_DIR "/tests/fuzz/corpus/images/" + name);
}

}  // namespace

TEST_CASE(
    "image: a JPEG with more Huffman codes than there are is refused, with few or no tables decoded alike") {
  CHECK_THAT(decoding_error(hostile_image("jpeg_dht_overflow.jpg")), Catch::Contains(kManyCodes));
  CHECK_THAT(decoding_error(hostile_image("jpeg_no_dqt.jpg")), Catch::Contains(kNoQuantization));
  // libjpeg has the tables of ISO/IEC 10918-1, annex K, where a file has none, as frames of Motion JPEG do.
  const std::string without_codes = hostile_image("jpeg_no_dht.jpg");
  if (kLibraries) {
    const Image image = dtk::decode_image(without_codes, "a");
    for (int again = 0; again < 3; ++again)
      CHECK(dtk::decode_image(without_codes, "a").pixels == image.pixels);
  } else {
    CHECK_THAT(decoding_error(without_codes), Catch::Contains("a scan comes before its Huffman table"));
  }
}

TEST_CASE("image: a table of a JPEG with too many codes is refused, cut or whole") {
  for (const std::string name : {"rgb.jpg", "progressive.jpg"}) {
    const std::string whole = encoded_image(name);
    const size_t first = whole.find("\xff\xc4"), last = whole.rfind("\xff\xc4");
    REQUIRE(first != std::string::npos);
    REQUIRE((last > whole.find("\xff\xda")) == (name == "progressive.jpg"));  // between its scans
    for (const size_t table : {first, last}) {
      std::string damaged = whole;
      damaged[table + 19] = damaged[table + 20] = '\x81';  // 258 codes of 15 and 16 bits, and more
      INFO(name << " " << table);
      CHECK_THAT(decoding_error(damaged), Catch::Contains(kManyCodes));
      CHECK_THAT(decoding_error(damaged.substr(0, table + 21)), Catch::Contains("a: cannot be decoded ("));
    }
  }
}

TEST_CASE("image: a JPEG of more scans than pictures have is refused") {
  // Each scan goes over the whole picture: a small file could keep a thread busy for hours.
  const auto with_scans = [](int scans) {
    using namespace std::string_literals;
    const auto segment = [](const char* marker, const std::string& content) {
      return marker + std::string(1, '\0') + static_cast<char>(content.size() + 2) + content;
    };
    // Progressive, 8 x 8 pixels, grey: all coefficients zero, one code of one bit in either table.
    std::string jpeg = "\xff\xd8" + segment("\xff\xdb", "\0"s + std::string(64, '\1')) +
                       segment("\xff\xc2", "\x08\0\x08\0\x08\x01\x01\x11\0"s);
    for (const char table : {'\0', '\x10'})
      jpeg += segment("\xff\xc4", std::string(1, table) + "\1"s + std::string(15, '\0') + "\0"s);
    jpeg += segment("\xff\xda", "\1\1\0\0\0\0"s) + "\x7f";
    for (int i = 1; i < scans; ++i) jpeg += segment("\xff\xda", "\1\1\0\1\x3f\0"s) + "\x7f";
    return jpeg + "\xff\xd9";
  };
  CHECK(dtk::decode_image(with_scans(90), "a").pixels == std::vector<uint8_t>(64, 128));
  if (kLibraries) CHECK_THAT(decoding_error(with_scans(200)), Catch::Contains("more than 100 scans"));
}

TEST_CASE("image: a PNG with more data than its picture is refused, and they are not kept") {
  const auto chunk = [](const std::string& name, const std::string& data) {
    const std::string content = name + data;
    const auto* bytes = reinterpret_cast<const Bytef*>(content.data());
    const auto checksum = static_cast<uint32_t>(crc32_z(0, bytes, content.size()));
    return dtk::test::big_endian({static_cast<uint32_t>(data.size())}) + content +
           dtk::test::big_endian({checksum});
  };
  const auto png = [&](size_t inflated) {
    const std::string header = dtk::test::big_endian({28, 28}) + std::string("\x08\0\0\0\0", 5);
    return std::string("\x89PNG\r\n\x1a\n") + chunk("IHDR", header) +
           chunk("IDAT", dtk::test::packed_by_zlib(std::string(inflated, '\0'), 15)) + chunk("IEND", "");
  };
  constexpr size_t picture = 28 * 29;
  CHECK(dtk::decode_image(png(picture), "a").pixels == std::vector<uint8_t>(28 * 28, 0));
  CHECK_THAT(decoding_error(png(picture - 1)), Catch::Contains("a: cannot be decoded ("));
  for (const size_t more : {size_t{1}, size_t{100}, size_t{64} << 20}) {
    const std::string bomb = png(picture + more);
    CHECK_THAT(decoding_error(bomb),
               Catch::Contains("it holds more data than its picture"));  // tests/fuzz counts the memory
  }
}

TEST_CASE("image: a BMP with a colour that its palette has not is refused") {
  // 2 x 1 pixels of 8 bits, a palette of two.
  std::string bmp = "BM" + test_little({66, 0, 62, 40, 2, 1}) + std::string("\1\0\x08\0", 4) +
                    test_little({0, 4, 0, 0, 2, 0}) + std::string("\0\0\0\0\xff\xff\xff\0\0\1\0\0", 12);
  CHECK(dtk::decode_image(bmp, "a").pixels == std::vector<uint8_t>{0, 0, 0, 255, 255, 255});
  bmp[63] = '\2';
  CHECK(decoding_error(bmp) ==
        "a: cannot be decoded (a pixel has a colour that its palette has not); allowed: PNG, JPEG, WebP and "
        "BMP; replace or remove it");
}

TEST_CASE("image: a BMP of OS/2 that ends too early is refused") {
  CHECK(decoding_error(hostile_image("truncated_os2.bmp")) ==
        "a: cannot be decoded (it ends too early); allowed: PNG, JPEG, WebP and BMP; replace or remove it");
}

TEST_CASE("image: a BMP or JPEG with a changed byte is decoded or refused") {
  for (const std::string name : {"rgb.bmp", "rgb.jpg", "progressive.jpg"}) {
    const std::string whole = encoded_image(name);
    for (size_t at = 0; at < std::min<size_t>(whole.size(), 700); ++at) {
      for (const int bit : {0, 7}) {
        INFO(name << " byte " << at << " bit " << bit);
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        try {
          const Image image = dtk::decode_image(damaged, "a");
          CHECK(image.height * image.width * image.channels == static_cast<int64_t>(image.pixels.size()));
        } catch (const DataError&) {
        }
      }
    }
  }
}

TEST_CASE("image grid: places, padding, scale and rounding") {
  // Three samples of 1 x 2 pixels in two columns, twice enlarged, one pixel of padding.
  const at::Tensor samples = at::tensor({-1.0F, 1.0F, 0.0F, -0.5F, 0.25F, 2.0F}).view({3, 1, 1, 2});
  const Image grid = image_grid(samples, 2, 1, 2);
  CHECK(grid.channels == 1);
  CHECK(grid.height == 1 + 2 * (2 + 1));
  CHECK(grid.width == 1 + 2 * (4 + 1));
  const std::vector<uint8_t> w(11, 255);
  const std::vector<uint8_t> a = {255, 0, 0, 255, 255, 255, 128, 128, 64, 64, 255};
  const std::vector<uint8_t> b = {255, 159, 159, 255, 255, 255, 255, 255, 255, 255, 255};
  std::vector<uint8_t> expected;
  for (const auto* row : {&w, &a, &a, &w, &b, &b, &w})
    expected.insert(expected.end(), row->begin(), row->end());
  CHECK(grid.pixels == expected);
}

TEST_CASE("image grid: colour samples become interleaved pixels") {
  const at::Tensor samples = at::tensor({-1.0F, 0.0F, 1.0F}).view({1, 3, 1, 1}).to(at::kDouble);
  CHECK(image_grid(samples, 1, 0, 1).pixels == std::vector<uint8_t>{0, 128, 255});
}

TEST_CASE("image grid: bad input") {
  CHECK(error_text<DataError>([] {
          image_grid(at::zeros({2, 4, 8, 8}), 1, 0, 1);
        }) ==
        "image grid: samples have 4 channels; allowed: 1 (grey) or 3 (RGB); decode latents to images first");
  at::Tensor samples = at::zeros({2, 1, 2, 2});
  samples[1][0][0][1] = std::numeric_limits<float>::quiet_NaN();
  CHECK(error_text<DataError>([&] { image_grid(samples, 1, 0, 1); }) ==
        "image grid: sample 1 holds a value that is not finite (NaN or infinite), so it is no image; sample "
        "from other weights");
  CHECK_THROWS_AS(image_grid(at::zeros({1, 2, 2}), 1, 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(image_grid(at::zeros({0, 1, 2, 2}), 1, 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(image_grid(at::zeros({1, 1, 2, 2}), 0, 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(image_grid(at::zeros({1, 1, 2, 2}), 1, -1, 1), std::invalid_argument);
  CHECK_THROWS_AS(image_grid(at::zeros({1, 1, 2, 2}), 1, 0, 0), std::invalid_argument);
}
