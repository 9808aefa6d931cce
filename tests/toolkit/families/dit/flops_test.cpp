#include "toolkit/families/dit/flops.h"

#include <dtk/policies/enum_text.h>

#include <cstdio>

#include "support/catch.h"

using namespace dtk;

namespace {

models::DitOptions published(const std::string& name, int64_t latent_size) {
  models::DitOptions model;
  model.name = dtk::policies::parse_enum<models::DitPreset>(name).value();
  model.image_size = latent_size;
  return model;
}

// In 10^9, with as many digits as `like` has.
std::string giga(int64_t number, const std::string& like) {
  const size_t point = like.find('.');
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(like.size() - point - 1),
                static_cast<double>(number) / 1e9);
  return text;
}

}  // namespace

TEST_CASE("multiply-adds of the published sizes are those of the paper's table") {
  struct Row {
    const char *name, *at_256, *at_512;
  };
  const Row rows[] = {
      {"DiT-S/2", "6.06", "31.44"},   {"DiT-S/4", "1.41", "6.07"},    {"DiT-S/8", "0.36", "1.43"},
      {"DiT-B/2", "23.01", "106.4"},  {"DiT-B/4", "5.57", "23.03"},   {"DiT-B/8", "1.42", "5.59"},
      {"DiT-L/2", "80.70", "361.0"},  {"DiT-L/4", "19.70", "80.74"},  {"DiT-L/8", "5.01", "19.73"},
      {"DiT-XL/2", "118.6", "524.5"}, {"DiT-XL/4", "29.04", "118.7"}, {"DiT-XL/8", "7.39", "29.09"}};
  for (const Row& row : rows) {
    INFO(row.name);
    CHECK(giga(dit::forward_multiply_adds(published(row.name, 32)), row.at_256) == row.at_256);
    CHECK(giga(dit::forward_multiply_adds(published(row.name, 64)), row.at_512) == row.at_512);
  }
}

TEST_CASE("multiply-adds are counted to the last") {
  // T 256, D 384, L 12, p 2, C 4 -> 8: blocks 12 x (256 x 12 D² + 2 x 256² D + 6 D²), ends, time embedding.
  constexpr int64_t square = 384 * 384;
  constexpr int64_t blocks = 12 * (256 * 12 * square + 2 * 256 * 256 * 384 + 6 * square);
  constexpr int64_t ends = 256 * 384 * 4 * (4 + 8) + 2 * square + 256 * 384 + square;
  CHECK(dit::forward_multiply_adds(published("DiT-S/2", 32)) == blocks + ends);
  CHECK(dit::training_flops_per_image(published("DiT-S/2", 32)) == 6 * (blocks + ends));
  models::DitOptions narrow = published("DiT-S/2", 32);
  narrow.mlp_ratio = 2;
  narrow.learn_sigma = false;
  CHECK(dit::forward_multiply_adds(narrow) == blocks + ends - 12 * 256 * 4 * square - 256 * 384 * 4 * 4);
}
