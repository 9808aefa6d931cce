// Whether weights are those of a model, and what the error says of those that are not.
#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/weights_world.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/torch_file.h"
#include "toolkit/train/trainable_model.h"

namespace dtk {
namespace {

using namespace test;

std::string misfit_of(World& world, const std::string& path, const RunConfig& config = test::tiny_config()) {
  const Weights weights = open_weights(world.files, request(path));
  return test::error_text<ConfigError>([&] { make_model(config, at::kMeta)->check_fit(weights); });
}

std::string misfit(const Named& tensors, const RunConfig& config = test::tiny_config()) {
  World world;
  write_torch_file(*world.files.create("/w.pt"), tensors);
  return misfit_of(world, "/w.pt", config);
}

const std::string not_of_model = "--weights /w.pt: the weights of /w.pt are not those of this model\n  ";
const std::string what_to_do =
    "\n  Allowed are the parameters of this model, all of them and no others, in floating point; "
    "name "
    "such weights, or set [model] as these were trained";

}  // namespace

TEST_CASE("weights: pos_embed may be missing, nothing else may") {
  const Named tensors = changed_parameters(tiny_model());
  CHECK(misfit(tensors) == "(nothing was thrown)");
  CHECK(misfit(without(tensors, "pos_embed")) == "(nothing was thrown)");
  CHECK(misfit(without(tensors, "blocks.1.mlp.fc1.bias")) ==
        not_of_model + "missing (1): blocks.1.mlp.fc1.bias [64]" + what_to_do);
  Named more = tensors;
  more.push_back({"extra\n", at::ones({2, 3})});
  CHECK(misfit(more) == not_of_model + "unknown (1): \"extra\\n\" [2, 3]" + what_to_do);
  CHECK(misfit(with(tensors, "blocks.1.mlp.fc1.bias", at::ones({64}, at::kLong))) ==
        not_of_model + "not floating-point (1): blocks.1.mlp.fc1.bias holds Long" + what_to_do);
  CHECK(misfit(with(tensors, "blocks.1.mlp.fc1.bias", at::ones({63}))) ==
        not_of_model + "of another shape (1): blocks.1.mlp.fc1.bias is [63], not [64]" + what_to_do);
}

TEST_CASE("weights: a prefix that all names have is no part of them") {
  const Named tensors = changed_parameters(tiny_model());
  Named prefixed = tensors;
  for (NamedTensor& one : prefixed) one.name = "module._orig_mod." + one.name;
  CHECK(misfit(prefixed) == "(nothing was thrown)");
  World world;
  write_safetensors(*world.files.create("/w.safetensors"), prefixed);
  const Weights weights = open_weights(world.files, request("/w.safetensors"));
  CHECK(same(read_all(weights), tensors));
  prefixed.back().name = "other." + prefixed.back().name;
  CHECK(misfit(prefixed).find("unknown (" + std::to_string(tensors.size()) + ")") != std::string::npos);
}

TEST_CASE("weights: of another size, with long lists shortened") {
  RunConfig other = test::tiny_config();
  dit::options_of(other).model.depth = 1;
  dit::options_of(other).model.hidden = 8;
  const std::string text = misfit(changed_parameters(tiny_model()), other);
  CHECK(text.starts_with(
      not_of_model +
      "unknown (10): \"blocks.1.attn.qkv.weight\" [48, 16], \"blocks.1.attn.qkv.bias\" [48], "
      "\"blocks.1.attn.proj.weight\" [16, 16], \"blocks.1.attn.proj.bias\" [16] and 6 more\n"
      "  of another shape (21): pos_embed is [1, 4, 16], not [1, 4, 8], "));
  CHECK(text.ends_with(what_to_do +
                       "\n  The weights have 2 blocks of 16 channels, this model 1 of 8; set model.depth and "
                       "model.hidden, or model.name"));
}

TEST_CASE("weights: of another number of classes") {
  const Named tensors = changed_parameters(tiny_model());
  const auto text = [&](int64_t rows, double dropout) {
    RunConfig config = test::tiny_config();
    dit::options_of(config).model.class_dropout = dropout;
    return misfit(with(tensors, class_table, at::ones({rows, 16})), config);
  };
  const std::string shape = not_of_model + "of another shape (1): " + class_table + " is [";
  const std::string known = what_to_do + "\n  The weights' label table has 1001 rows: set model.classes = ";
  CHECK(text(1001, 0.1) ==
        shape + "1001, 16], not [5, 16]" + known +
            "1000, or 1001 with model.class_dropout = 0 if none of them is for the null label");
  CHECK(text(1001, 0.0) ==
        shape + "1001, 16], not [4, 16]" + known +
            "1001, or 1000 with model.class_dropout above 0 if one of them is for the null label");
}

TEST_CASE("weights: of another image size, and with a variance") {
  RunConfig larger = test::tiny_config();
  dit::options_of(larger).model.image_size = 16;
  const Named large = changed_parameters(tiny_model(1, larger));
  CHECK(misfit(large) ==
        not_of_model + "of another shape (1): pos_embed is [1, 16, 16], not [1, 4, 16]" + what_to_do +
            "\n"
            "  pos_embed is a fixed table with one row a token: the weights are for 16 tokens, this model "
            "has 4, "
            "(model.image_size / model.patch) squared; set model.image_size = 16 with model.patch = 4");
  RunConfig sigma = test::tiny_config();
  dit::options_of(sigma).model.learn_sigma = true;
  CHECK(misfit(changed_parameters(tiny_model(1, sigma)))
            .ends_with(what_to_do + "\n  The weights predict a variance too; set model.learn_sigma = true"));
  CHECK(misfit(changed_parameters(tiny_model()), sigma)
            .ends_with(what_to_do + "\n  The weights predict no variance; set model.learn_sigma = false"));
}

TEST_CASE("weights: missing, unknown, misshapen and mistyped at once, in a file of either kind") {
  World world;
  Named tensors = changed_parameters(tiny_model());
  tensors = without(without(tensors, "blocks.0.attn.qkv.bias"), "blocks.1.mlp.fc2.weight");
  tensors = with(with(tensors, "blocks.1.mlp.fc1.bias", at::ones({63})), class_table, at::ones({1001, 16}));
  tensors = with(tensors, "blocks.0.mlp.fc1.bias", at::ones({64}, at::kLong));
  tensors.push_back({"head.bias", at::ones({3})});
  tensors.push_back({"head.weight", at::ones({3, 2})});
  write_torch_file(*world.files.create("/w.pt"), tensors);
  write_safetensors(*world.files.create("/w.safetensors"), tensors);
  for (const std::string path : {"/w.pt", "/w.safetensors"}) {
    INFO(path);
    const std::string label_table = class_table + " is [1001, 16], not [5, 16]";
    const std::string bias = "blocks.1.mlp.fc1.bias is [63], not [64]";
    // A file of torch.save keeps the order in which it was written, one of safetensors is sorted.
    const std::string shapes = path == "/w.pt" ? label_table + ", " + bias : bias + ", " + label_table;
    CHECK(misfit_of(world, path) ==
          "--weights " + path + ": the weights of " + path +
              " are not those of this model\n"
              "  missing (2): blocks.0.attn.qkv.bias [48], blocks.1.mlp.fc2.weight [16, 64]\n"
              "  unknown (2): \"head.bias\" [3], \"head.weight\" [3, 2]\n"
              "  of another shape (2): " +
              shapes +
              "\n"
              "  not floating-point (1): blocks.0.mlp.fc1.bias holds Long" +
              what_to_do +
              "\n  The weights' label table has 1001 rows: set model.classes = 1000, or 1001 with "
              "model.class_dropout = 0 if none of them is for the null label");
  }
}

}  // namespace dtk
