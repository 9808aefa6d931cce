// Which modules of a model repeat, by the shapes of their parameters.
#include <ATen/ATen.h>
#include <dtk/policies/internal/repeated_modules.h>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

using Paths = std::vector<std::string>;

// Two layers below `path`.
void add_block(NamedTensors& parameters, const std::string& path, int64_t width) {
  parameters.emplace_back(path + ".norm.weight", at::zeros({width}));
  parameters.emplace_back(path + ".fc.weight", at::zeros({width, width}));
}

void add_layer(NamedTensors& parameters, const std::string& path, int64_t width) {
  parameters.emplace_back(path + ".weight", at::zeros({width, width}));
  parameters.emplace_back(path + ".bias", at::zeros({width}));
}

}  // namespace

TEST_CASE("neighbours whose parameters have the same names and shapes repeat, whatever they are called") {
  NamedTensors parameters;
  add_layer(parameters, "embed", 8);
  for (const char* path : {"encoder.layer.0", "encoder.layer.1", "encoder.layer.10"})
    add_block(parameters, path, 8);
  add_block(parameters, "wide", 16);
  add_block(parameters, "stem", 4);
  add_block(parameters, "body", 4);
  add_layer(parameters, "head", 8);
  const Paths paths = {
      "embed", "encoder.layer.0", "encoder.layer.1", "encoder.layer.10", "wide", "stem", "relu", "body",
      "head"};
  CHECK(repeated_modules(paths, parameters) ==
        Paths{"encoder.layer.0", "encoder.layer.1", "encoder.layer.10", "stem", "body"});
  CHECK(repeated_modules({"embed", "wide"}, {}).empty());
}

TEST_CASE("equal modules that another one separates do not repeat") {
  NamedTensors parameters;
  add_block(parameters, "a", 8);
  add_block(parameters, "b", 16);
  add_block(parameters, "c", 8);
  CHECK(repeated_modules({"a", "b", "c"}, parameters).empty());
  CHECK(repeated_modules({"a", "c", "b"}, parameters) == Paths{"a", "c"});
}

TEST_CASE("of modules within each other those are taken that are more and most of the model") {
  NamedTensors blocks;
  for (const char* path : {"blocks.0", "blocks.1"}) {
    add_block(blocks, std::string(path) + ".attention", 32);  // most of the block
    add_block(blocks, std::string(path) + ".mlp.0", 8);
    add_block(blocks, std::string(path) + ".mlp.1", 8);
  }
  CHECK(repeated_modules({"blocks.0.mlp.0", "blocks.0.mlp.1", "blocks.0", "blocks.1"}, blocks) ==
        Paths{"blocks.0", "blocks.1"});
  NamedTensors towers;
  Paths paths;
  for (const std::string tower : {"image", "text"}) {
    for (const char* block : {".0", ".1", ".2"}) {
      add_block(towers, tower + block, 8);
      paths.push_back(tower + block);
    }
    paths.push_back(tower);
  }
  CHECK(repeated_modules(paths, towers) ==
        Paths{"image.0", "image.1", "image.2", "text.0", "text.1", "text.2"});
  CHECK(repeated_modules({"image", "text"}, towers) == Paths{"image", "text"});
}

TEST_CASE("single layers are left out") {
  NamedTensors parameters;
  for (const char* path : {"blocks.0.mlp.0", "blocks.0.mlp.1"}) add_block(parameters, path, 8);
  CHECK(repeated_modules({"blocks.0.mlp.0", "blocks.0.mlp.1"}, parameters) ==
        Paths{"blocks.0.mlp.0", "blocks.0.mlp.1"});
  NamedTensors layers;
  add_layer(layers, "fc1", 8);
  add_layer(layers, "fc2", 8);
  CHECK(repeated_modules({"fc1", "fc2"}, layers).empty());
  // A module with two matrices of its own is more than a layer.
  const NamedTensors matrices = {{"a.in", at::zeros({8, 8})},
                                 {"a.out", at::zeros({8, 8})},
                                 {"b.in", at::zeros({8, 8})},
                                 {"b.out", at::zeros({8, 8})}};
  CHECK(repeated_modules({"a", "b"}, matrices) == Paths{"a", "b"});
}

TEST_CASE("where parameters have other names than modules, modules that are numbered repeat") {
  const NamedTensors parameters = {{"net.a.w", at::zeros({2})}};
  CHECK(repeated_modules({"in", "blocks.0", "blocks.1", "head.0", "out"}, parameters) ==
        Paths{"blocks.0", "blocks.1"});
  CHECK(repeated_modules({"0", "1", "out"}, {}) == Paths{"0", "1"});
}

TEST_CASE("parameters are known to be named by paths, or not") {
  const NamedTensors named = {{"net.blocks.0.w", at::zeros({2})}};
  CHECK(are_named_by_paths(named, {"net.blocks.0"}));
  CHECK_FALSE(are_named_by_paths(named, {"blocks.0", "net.blocks.01", "net.blocks.0.w"}));
}
