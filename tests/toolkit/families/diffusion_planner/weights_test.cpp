// Weights of the driving model: as the original's trainers write them, what does not fit, and back.
//
// Whether PyTorch itself reads and writes them so is for tests/integration/exchange/diffusion_planner_weights_test.py.
#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/diffusion_planner/model.h"
#include "support/error_text.h"
#include "support/runs/weights_world.h"
#include "support/same_bits.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/io/torch_file.h"
#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {
namespace {

using namespace test;

/// Of the model's shapes, in its order.
Named random_weights(const models::DiffusionPlanner& model) {
  Named tensors;
  for (const auto& [name, parameter] : model.parameters()) {
    tensors.push_back({name, at::randn(parameter.sizes())});
  }
  return tensors;
}

Named renamed(Named tensors, const std::string& prefix) {
  for (NamedTensor& one : tensors) one.name = prefix + one.name;
  return tensors;
}

models::DiffusionPlanner shapes_of(const models::DiffusionPlannerOptions& options) {
  return models::DiffusionPlanner(options, at::kMeta);
}

/// Of a run that trains such a model, without augmentation, which not all presets can have.
RunConfig config_of(const models::DiffusionPlannerOptions& model) {
  RunConfig config;
  config.train.model = "diffusion_planner";
  Options& options = options_of(config);
  options.model = model;
  options.process.prefix = !model.upstream();
  options.augmentation.probability = 0;
  options.augmentation.smooth = false;
  return config;
}

Named exported(const Weights& weights, const models::DiffusionPlannerOptions& options) {
  const RunConfig config = config_of(options);
  return family_of(config).to_export(weights, config);
}

std::string refusal(const Weights& weights, const models::DiffusionPlannerOptions& options) {
  return error_text<ConfigError>([&] { make_model(config_of(options), at::kMeta)->check_fit(weights); });
}

bool same_in_order(const Named& a, const Named& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && same_bits(x.tensor, y.tensor);
  });
}

std::string misfit(const Named& tensors, const models::DiffusionPlannerOptions& options) {
  World world;
  write_torch_file(*world.files.create("/w.pth"), tensors);
  return refusal(open_weights(world.files, request("/w.pth")), options);
}

const std::string not_of_model = "--weights /w.pth: the weights of /w.pth are not those of this model\n  ";
const std::string what_to_do =
    "\n  Allowed are the parameters of this model, all of them and no others, in floating point; "
    "name such weights, or set [diffusion_planner] as these were trained";

}  // namespace

TEST_CASE(
    "diffusion_planner weights: bit for bit into a model and out of it, with a wrapper's prefix and "
    "without") {
  for (const std::string preset : {"H", "UP"}) {
    for (const std::string prefix : {"", "module.", "module._orig_mod."}) {
      INFO(preset << " " << prefix);
      const models::DiffusionPlannerOptions options = small_diffusion_planner_options(preset);
      const TrainableDiffusionPlanner model(config_of(options), at::kCPU);
      const Named tensors = random_weights(shapes_of(options));
      World world;
      write_torch_file(*world.files.create("/in.pth"), renamed(tensors, prefix));
      const Weights weights = open_weights(world.files, request("/in.pth"));
      load_weights(weights, model);
      for (size_t i = 0; i < tensors.size(); ++i) {
        INFO(tensors[i].name);
        CHECK(model.parameters()[i].second.requires_grad());
        CHECK(same_bits(model.parameters()[i].second.detach(), tensors[i].tensor));
      }
      const Named out = exported(weights, options);
      CHECK(same_in_order(out, tensors));
      write_torch_file(*world.files.create("/out.pth"), out);
      CHECK(same_in_order(read_all(open_weights(world.files, request("/out.pth"))), tensors));
    }
  }
}

TEST_CASE(
    "diffusion_planner weights: the order of the file does not matter, and half precision is converted") {
  const models::DiffusionPlannerOptions options = small_diffusion_planner_options("M");
  Named tensors = random_weights(shapes_of(options));
  for (NamedTensor& one : tensors) one.tensor = one.tensor.to(at::kHalf);
  World world;
  write_torch_file(*world.files.create("/w.pth"), Named(tensors.rbegin(), tensors.rend()));
  const Weights weights = open_weights(world.files, request("/w.pth"));
  CHECK(conversion_note(weights) ==
        std::to_string(tensors.size()) + " tensors converted from float16 to float32");
  for (NamedTensor& one : tensors) one.tensor = one.tensor.to(at::kFloat);
  CHECK(same_in_order(exported(weights, options), tensors));
}

TEST_CASE("diffusion_planner weights: missing, unknown, misshapen and mistyped are listed") {
  const models::DiffusionPlannerOptions options = small_diffusion_planner_options("H");
  const Named tensors = random_weights(shapes_of(options));
  CHECK(misfit(tensors, options) == "(nothing was thrown)");
  CHECK(misfit(without(tensors, "encoder.fusion.norm.bias"), options) ==
        not_of_model + "missing (1): encoder.fusion.norm.bias [64]" + what_to_do);
  Named more = tensors;
  more.push_back({"decoder.extra", at::ones({2, 3})});
  CHECK(misfit(more, options) == not_of_model + "unknown (1): \"decoder.extra\" [2, 3]" + what_to_do);
  Named wrong = with(tensors, "decoder.turn_indicator_predictor.bias", at::ones({4}));
  wrong = with(wrong, "encoder.fusion.norm.bias", at::ones({64}, at::kLong));
  CHECK(misfit(wrong, options) ==
        not_of_model +
            "of another shape (1): decoder.turn_indicator_predictor.bias is [4], not [5]\n"
            "  not floating-point (1): encoder.fusion.norm.bias holds Long" +
            what_to_do);
  const TrainableDiffusionPlanner model(config_of(options), at::kCPU);
  const at::Tensor before = model.parameters().front().second.detach().clone();
  World world;
  write_torch_file(*world.files.create("/w.pth"), wrong);
  const Weights weights = open_weights(world.files, request("/w.pth"));
  CHECK_THROWS_AS(load_weights(weights, model), ConfigError);
  CHECK(same_bits(model.parameters().front().second.detach(), before));
  CHECK_THROWS_AS(exported(weights, options), ConfigError);
}

TEST_CASE("diffusion_planner weights: what to set where they are those of another preset or size") {
  const auto hint = [](const models::DiffusionPlannerOptions& of, const models::DiffusionPlannerOptions& in) {
    const std::string text = misfit(random_weights(shapes_of(of)), in);
    const size_t at = text.find(what_to_do);
    REQUIRE(at != text.npos);
    return text.substr(at + what_to_do.size());
  };
  const models::DiffusionPlannerOptions h = small_diffusion_planner_options("H"),
                                        up = small_diffusion_planner_options("UP");
  CHECK(hint(up, h) == "\n  The weights are those of another preset; set diffusion_planner.preset = \"UP\"");
  CHECK(hint(h, up) ==
        "\n  The weights are those of another preset; set diffusion_planner.preset = \"H\", or \"M\"");
  models::DiffusionPlannerOptions other = h;
  other.hidden_dim = 32;
  other.encoder_mixer_depth = 3;
  other.encoder_fusion_depth = 1;
  other.decoder_depth = 1;
  CHECK(hint(other, h) ==
        "\n  The weights are of another size; set diffusion_planner.hidden_dim = 32, "
        "diffusion_planner.encoder_mixer_depth = 3, "
        "diffusion_planner.encoder_fusion_depth = 1 and diffusion_planner.decoder_depth = 1");
  other = h;
  other.mixer_tokens = 32;
  other.mixer_channels = 16;
  other.time_len = 21;
  other.future_len = 40;
  CHECK(hint(other, h) ==
        "\n  The weights are of another size; set diffusion_planner.mixer_tokens = 32, "
        "diffusion_planner.mixer_channels = 16, "
        "diffusion_planner.time_len = 21 and diffusion_planner.future_len = 40");
  other = h;
  other.lane_len = 10;
  other.route_len = 11;
  other.route_num = 12;
  other.polygon_len = 13;
  other.line_string_len = 14;
  CHECK(hint(other, h) ==
        "\n  The weights are of another size; set diffusion_planner.lane_len = 10, "
        "diffusion_planner.route_len = 11, "
        "diffusion_planner.route_num "
        "= 12, diffusion_planner.polygon_len = 13 and diffusion_planner.line_string_len = 14");
  other = up;
  other.decoder_depth = 3;
  other.time_len = 11;
  CHECK(hint(other, up) ==
        "\n  The weights are of another size; set diffusion_planner.decoder_depth = 3 and "
        "diffusion_planner.time_len = 11");
  // A DiT's weights are of no preset.
  const std::string text = misfit(changed_parameters(tiny_model()), h);
  CHECK(text.ends_with(what_to_do));
}

TEST_CASE("diffusion_planner weights: heads, which no shape tells, must be those of the weights") {
  const models::DiffusionPlannerOptions options = small_diffusion_planner_options("H");
  World world;
  write_torch_file(*world.files.create("/w.pth"), random_weights(shapes_of(options)));
  Weights weights = open_weights(world.files, request("/w.pth"));
  weights.heads = 8;
  CHECK(refusal(weights, options) ==
        "--weights /w.pth: the weights of /w.pth were trained with diffusion_planner.num_heads = 8, and this "
        "model has "
        "4, "
        "whose attention is another; set diffusion_planner.num_heads = 8");
  weights.heads = 4;
  CHECK(refusal(weights, options) == "(nothing was thrown)");
}

}  // namespace dtk::diffusion_planner
