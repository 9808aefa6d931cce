// Pictures of drawn scenes: the canvas covers what it should, and a frame's parts are seen where they are.
#include <ATen/ATen.h>

#include <cmath>

#include "diffusion_planner/canvas.h"
#include "diffusion_planner/scene_image.h"
#include "diffusion_planner/scene_set.h"
#include "support/catch.h"
#include "support/error_text.h"

namespace {

using namespace scenes;

/// Of white paper, in pixels.
double inked(const Canvas& canvas) {
  double sum = 0;
  const dtk::Image image = canvas.image();
  for (const uint8_t value : image.pixels) sum += 255 - value;
  return sum / 255 / 3;
}

constexpr Color white = {255, 255, 255}, black = {0, 0, 0};

int64_t count(const dtk::Image& image, Color color) {
  int64_t found = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    found += image.pixels[i] == color.red && image.pixels[i + 1] == color.green &&
             image.pixels[i + 2] == color.blue;
  }
  return found;
}

Color pixel(const dtk::Image& image, int64_t x, int64_t y) {
  const auto i = static_cast<size_t>(3 * (y * image.width + x));
  return {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2]};
}

dtk::diffusion_planner::FrameBatch frame() {
  dtk::diffusion_planner::FrameBatch drawn;
  for_each_frame(scene_set("reduced").value(), 1, [&](const dtk::diffusion_planner::FrameBatch& one, int64_t) { drawn = one; });
  return drawn;
}

}  // namespace

TEST_CASE("canvas: lines and areas cover as many pixels as they are large") {
  Canvas line(100, 100, white);
  line.stroke({{20, 30}, {70, 61}}, 4, black);
  CHECK(inked(line) == Approx(4 * std::hypot(50, 31) + 3.14159 * 4).epsilon(0.02));
  Canvas area(100, 100, white);
  area.fill({{10.5, 10}, {60, 20}, {30, 70}}, black);
  CHECK(inked(area) == Approx(std::abs(49.5 * 60 - 19.5 * 10) / 2).epsilon(0.005));
  Canvas half(100, 100, white);
  half.fill({{10, 10}, {20, 10}, {20, 20}, {10, 20}}, black, 0.5);
  CHECK(inked(half) == Approx(50).epsilon(0.01));
  Canvas dashes(100, 100, white);
  dashes.stroke_dashed({{10, 50}, {90, 50}}, 2, 10, black);
  CHECK(inked(dashes) == Approx(4 * (10 * 2 + 3.14159)).epsilon(0.03));
  Canvas outside(10, 10, white);
  outside.stroke({{-50, -50}, {-20, 500}}, 4, black);
  outside.fill({{20, 20}, {40, 20}, {30, 30}}, black);
  CHECK(inked(outside) == 0);
}

TEST_CASE("canvas: a line that comes over itself is as dark as one that does not, and text is written") {
  Canvas once(60, 60, white), twice(60, 60, white);
  once.stroke({{10, 10}, {50, 50}}, 5, black, 0.5);
  twice.stroke({{10, 10}, {50, 50}, {10, 10}}, 5, black, 0.5);
  CHECK(once.image().pixels == twice.image().pixels);
  Canvas text(60, 30, white);
  text.write({2, 2}, "T", black);
  CHECK(inked(text) == Approx(4 * (5 + 6)));
}

TEST_CASE("scene image: the ego vehicle in the middle, the true path ahead, predictions where given") {
  constexpr Color ego = {200, 30, 40}, truth = {20, 140, 60}, predicted = {214, 20, 160};
  const dtk::diffusion_planner::FrameBatch batch = frame();
  const dtk::Image plain = draw_scene(batch, 0, {}, {.pixels = 600, .reach = 40});
  CHECK((plain.width == 600 && plain.height == 600 && plain.channels == 3));
  const auto rear = pixel(plain, 300, 300 + 2);
  CHECK((rear.red == ego.red && rear.green == ego.green && rear.blue == ego.blue));
  CHECK(count(plain, predicted) == 0);
  // Straight ahead for 20 m and to the left for the others.
  at::Tensor paths = at::zeros({2, 80, 4});
  paths[0].select(1, 0).copy_(at::arange(1, 81) * 0.25);
  paths[1].select(1, 1).copy_(at::arange(1, 81) * 0.25);
  const dtk::Image both = draw_scene(batch, 0, paths, {.pixels = 600, .reach = 40});
  CHECK(count(both, predicted) > 200);
  CHECK(count(both, predicted) >
        count(draw_scene(batch, 0, paths * 0, {.pixels = 600, .reach = 40}), predicted));
  const auto dot = pixel(both, 300, static_cast<int64_t>(300 - 20 * 7.5));
  CHECK((dot.red == predicted.red && dot.blue == predicted.blue));
  CHECK(draw_scene(batch, 0, paths.narrow(2, 0, 3), {.pixels = 600, .reach = 40}).pixels == both.pixels);
  CHECK(count(draw_scene(batch, 0), truth) > 50);
}

TEST_CASE("scene image: upstream's frames have fewer arrays") {
  for_each_frame(scene_set("UP").value(), 1, [&](const dtk::diffusion_planner::FrameBatch& one, int64_t) {
    CHECK(count(draw_scene(one, 0), {200, 30, 40}) > 20);
  });
}

TEST_CASE("scene image: what cannot be drawn is refused") {
  const dtk::diffusion_planner::FrameBatch batch = frame();
  CHECK_THROWS_AS(draw_scene(batch, 1), std::out_of_range);
  const std::string refused =
      "draw_scene: predicted has to be (trajectories, steps, 3 or 4), and a side 200 pixels at least";
  const auto text = [&](const at::Tensor& paths, const SceneImageOptions& options) {
    return dtk::test::error_text<std::invalid_argument>([&] { draw_scene(batch, 0, paths, options); });
  };
  CHECK(text(at::zeros({80, 4}), {}) == refused);
  CHECK(text(at::zeros({1, 80, 2}), {}) == refused);
  CHECK(text({}, {.pixels = 100}) == refused);
}
