#include <dtk/models/dit_options.h>
#include <dtk/policies/enum_text.h>

#include <limits>
#include <stdexcept>

#include "support/catch.h"
#include "support/error_text.h"

using namespace dtk::models;
using dtk::test::error_text;

namespace {

DitOptions tiny() {
  return {.name = DitPreset::custom, .depth = 2, .hidden = 24, .heads = 3, .patch = 2, .image_size = 8};
}

DitOptions named(const std::string& name) {
  DitOptions options;
  options.name = dtk::policies::parse_enum<DitPreset>(name).value();
  return options;
}

/// "field: message" of the only broken rule.
std::string only_problem(const DitOptions& options) {
  const auto found = problems(options);
  if (found.size() != 1) return std::to_string(found.size()) + " problems";
  return found.front().field + ": " + found.front().message;
}

}  // namespace

TEST_CASE("DiT sizes: as published") {
  struct Row {
    const char* letters;
    int64_t depth, hidden, heads;
  };
  for (const Row& row :
       {Row{"S", 12, 384, 6}, Row{"B", 12, 768, 12}, Row{"L", 24, 1024, 16}, Row{"XL", 28, 1152, 16}}) {
    for (const int64_t patch : {2, 4, 8}) {
      const std::string name = std::string("DiT-") + row.letters + "/" + std::to_string(patch);
      const DitOptions options = resolved(named(name));
      INFO(name);
      CHECK(dtk::policies::text_of(options.name) == name);
      CHECK(options.depth == row.depth);
      CHECK(options.hidden == row.hidden);
      CHECK(options.heads == row.heads);
      CHECK(options.patch == patch);
      CHECK(options.tokens() == (32 / patch) * (32 / patch));
      CHECK(resolved(options) == options);
    }
  }
  CHECK_FALSE(published_size(DitPreset::custom));
}

TEST_CASE("DiT options: derived numbers") {
  CHECK(named("DiT-XL/2").tokens() == 256);
  CHECK(tiny().tokens() == 16);
  CHECK(tiny().out_channels() == 8);
  DitOptions options = tiny();
  options.learn_sigma = false;
  CHECK(options.out_channels() == 4);
  CHECK(resolved(tiny()) == tiny());
  CHECK(problems(tiny()).empty());
}

TEST_CASE("DiT options: a published name fixes its sizes") {
  DitOptions options = named("DiT-S/4");
  options.hidden = 384;
  CHECK(only_problem(options) ==
        "hidden: model.hidden is fixed by model.name = \"DiT-S/4\"; remove it, or use name = \"custom\"");
  options.depth = 2;
  const auto found = problems(options);
  REQUIRE(found.size() == 2);
  CHECK(found[0].field == "depth");
  CHECK(found[1].field == "hidden");
  CHECK(error_text<std::invalid_argument>([&] { resolved(options); }) ==
        "model.depth is fixed by model.name = \"DiT-S/4\"; remove it, or use name = \"custom\"");
}

TEST_CASE("DiT options: custom needs all sizes") {
  DitOptions options = tiny();
  options.patch.reset();
  CHECK(
      only_problem(options) ==
      "name: model.name = \"custom\" needs model.depth, model.hidden, model.heads and model.patch; missing: "
      "model.patch; set them, or give a published name such as \"DiT-S/4\"");
  CHECK_THROWS_AS(options.tokens(), std::invalid_argument);
}

TEST_CASE("DiT options: divisions") {
  DitOptions options = tiny();
  options.heads = 5;
  CHECK(only_problem(options) ==
        "hidden: model.hidden = 24 is not divisible by model.heads = 5; set model.hidden = 20 or 40, or "
        "model.heads to a divisor of 24");
  options = tiny();
  options.hidden = 27;
  CHECK(only_problem(options) ==
        "hidden: model.hidden = 27 is not divisible by 4, which the position embedding needs; set "
        "model.hidden = 24 or 36");
  options = tiny();
  options.image_size = 9;
  CHECK(only_problem(options) ==
        "image_size: model.image_size = 9 is not divisible by model.patch = 2; set model.image_size = 8 or "
        "10, or use a patch that divides 9");
  options = tiny();
  options.mlp_ratio = 2.66;
  CHECK(only_problem(options) ==
        "mlp_ratio: model.mlp_ratio = 2.66 times model.hidden = 24 is 63.84, not a whole number; set a ratio "
        "that makes it one, such as 3");
  options = tiny();
  options.heads = 25;
  CHECK(only_problem(options) ==
        "hidden: model.hidden = 24 is not divisible by model.heads = 25; set model.hidden = 100, or "
        "model.heads to a divisor of 24");
  options = tiny();
  options.hidden = std::numeric_limits<int64_t>::max();
  options.heads = std::numeric_limits<int64_t>::max() - 1;
  CHECK(problems(options).front().message.ends_with(
      "; set model.hidden = 9223372036854775806, or model.heads to a divisor of 9223372036854775807"));
  options = tiny();
  options.patch = 32;
  CHECK(only_problem(options) ==
        "image_size: model.image_size = 8 is not divisible by model.patch = 32; set model.image_size = 32, "
        "or use a patch that divides 8");
  options = tiny();
  options.mlp_ratio = 2.5;
  CHECK(problems(options).empty());
}

TEST_CASE("DiT options: made in code, nothing divides by zero") {
  DitOptions options = tiny();
  options.heads = 0;
  CHECK(only_problem(options) == "heads: model.heads = 0 must be at least 1");
  options = tiny();
  options.patch = 0;
  CHECK(only_problem(options) == "patch: model.patch = 0 must be at least 1");
  options = tiny();
  options.channels = -1;
  CHECK(only_problem(options) == "channels: model.channels = -1 must be at least 1");
  options = tiny();
  options.class_dropout = 1;
  CHECK(only_problem(options) == "class_dropout: model.class_dropout = 1 must be in [0, 1)");
  options = tiny();
  options.mlp_dropout = std::numeric_limits<double>::quiet_NaN();
  CHECK(only_problem(options) == "mlp_dropout: model.mlp_dropout = nan must be in [0, 1)");
  options = tiny();
  options.mlp_ratio = 0;
  CHECK(only_problem(options) == "mlp_ratio: model.mlp_ratio = 0 must be in (0, inf)");
}
