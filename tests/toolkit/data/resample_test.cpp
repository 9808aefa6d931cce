#include <ATen/ATen.h>

#include <algorithm>

#include "support/catch.h"
#include "support/fixture.h"
#include "toolkit/data/image.h"

using dtk::Image;
using dtk::resize_and_crop;
using dtk::resize_bicubic;

namespace {

/// Images and what Pillow makes of them (pillow_bicubic.json).
Image pillow_image(const std::string& name) {
  static const dtk::test::Fixture images = dtk::test::read_fixture("pillow_bicubic");
  const at::Tensor& pixels = images.at(name);
  const auto* first = pixels.const_data_ptr<uint8_t>();
  return {.height = pixels.size(0),
          .width = pixels.size(1),
          .channels = pixels.size(2),
          .pixels = std::vector<uint8_t>(first, first + pixels.numel())};
}

Image plain(int64_t height, int64_t width, uint8_t value) {
  return {.height = height,
          .width = width,
          .channels = 1,
          .pixels = std::vector<uint8_t>(static_cast<size_t>(height * width), value)};
}

}  // namespace

TEST_CASE("resampling: equal to Pillow's bicubic to the bit") {
  for (const std::string name :
       {"down", "up", "width_only", "height_only", "mixed", "far_down", "one_pixel_high"}) {
    INFO(name);
    const Image expected = pillow_image(name + ".out");
    const Image resized = resize_bicubic(pillow_image(name + ".in"), expected.height, expected.width);
    CHECK(resized.height == expected.height);
    CHECK(resized.width == expected.width);
    CHECK(resized.pixels == expected.pixels);
  }
}

TEST_CASE("resampling: the shorter side fits, the middle of the longer one stays") {
  const Image cropped = resize_and_crop(pillow_image("crop.in"), 16);
  CHECK(cropped.pixels == pillow_image("crop.out").pixels);

  Image wide = plain(4, 9, 0);  // two columns left and three right of the middle go
  for (int64_t y = 0; y < 4; ++y) {
    for (int64_t x = 0; x < 9; ++x) wide.pixels[static_cast<size_t>(y * 9 + x)] = static_cast<uint8_t>(x);
  }
  const Image middle = resize_and_crop(wide, 4);
  CHECK(std::vector<uint8_t>(middle.pixels.begin(), middle.pixels.begin() + 4) ==
        std::vector<uint8_t>{2, 3, 4, 5});
}

TEST_CASE("resampling: a long and thin image takes no more memory than what is wanted of it") {
  const Image thin = plain(2, 20'000'000, 9);  // enlarged as a whole it would have 2.6e12 pixels
  CHECK(resize_and_crop(thin, 512).pixels == plain(512, 512, 9).pixels);
}

TEST_CASE("resampling: one colour stays one colour, and an image that fits stays itself") {
  for (const int64_t size : {1, 3, 20, 64}) {
    const Image resized = resize_and_crop(plain(20, 31, 77), size);
    CHECK(resized.pixels == plain(size, size, 77).pixels);
  }
  const Image image = pillow_image("crop.out");
  CHECK(resize_and_crop(image, 16).pixels == image.pixels);
}

TEST_CASE("resampling: reducing is antialiased") {
  Image stripes = plain(64, 64, 0);
  for (size_t i = 0; i < stripes.pixels.size(); i += 2) stripes.pixels[i] = 255;  // columns, black and white
  const Image reduced = resize_bicubic(stripes, 8, 8);
  // As Pillow has it. Picking single pixels would give all black or all white; at the ends the filter is cut.
  std::vector<uint8_t> expected;
  for (int row = 0; row < 8; ++row) {
    for (const uint8_t value : {132, 127, 128, 128, 128, 128, 128, 123}) expected.push_back(value);
  }
  CHECK(reduced.pixels == expected);
}

TEST_CASE("resampling: sizes below one are refused") {
  CHECK_THROWS_AS(resize_bicubic(plain(2, 2, 0), 0, 2), std::invalid_argument);
  CHECK_THROWS_AS(resize_bicubic(Image{}, 2, 2), std::invalid_argument);
}
