// The driving model against its originals: sizes, names, initial values, outputs and gradients.
//
// diffusion_planner/model.safetensors holds what the three originals (named in its .json) returned for the
// weights of support/diffusion_planner/model.h and the scenes in the file: outputs, and the gradients of
// sum(output · cotangent.output) + sum(logit · cotangent.logit), all computed in float64.
#include "support/diffusion_planner/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "support/catch.h"
#include "support/diffusion_planner/preset.h"

using namespace dtk::models;
using namespace dtk::test;

namespace {

int64_t count(const NamedTensors& parameters, const std::string& prefix = "") {
  int64_t total = 0;
  for (const auto& [name, tensor] : parameters) {
    if (name.starts_with(prefix)) total += tensor.numel();
  }
  return total;
}

/// "name [2,3]" of each entry, in the order of the published state dict.
std::vector<std::string> published_keys(const std::string& of) {
  std::ifstream file(std::string(DTK_FIXTURES) + "/diffusion_planner/keys.txt");
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string model, name, shape;
    words >> model >> name >> shape;
    if (model == of) keys.push_back(name + " " + shape);
  }
  return keys;
}

std::vector<std::string> keys(const NamedTensors& parameters) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : parameters) {
    std::string shape;
    for (const int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    found.push_back(name + " [" + shape + "]");
  }
  return found;
}

double worst_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

const at::Tensor& parameter(const DiffusionPlanner& model, const std::string& name) {
  for (const auto& [key, tensor] : model.parameters()) {
    if (key == name) return tensor;
  }
  throw std::out_of_range("the model has no parameter " + name);
}

struct Outputs {
  at::Tensor encoding, output, logit;
};

Outputs evaluate(const DiffusionPlanner& model, const Fixture& fixture, bool training) {
  const bool upstream = model.options().upstream();
  at::Tensor t = fixture.at("t");
  if (upstream) t = t.select(1, 1).select(1, 40).squeeze(-1);
  const DrivingContext context = model.encode(small_scene(fixture, upstream), training);
  Outputs out;
  out.encoding = context.encoding;
  out.output = model.denoise(fixture.at("x"), t, context, training);
  if (!upstream) out.logit = model.turn_indicator(fixture.at("ego"), context.encoding);
  return out;
}

}  // namespace

TEST_CASE("every preset has the published number of parameters, tensors and tokens") {
  struct Row {
    const char* name;
    int64_t parameters, encoder, decoder;
    size_t tensors;
    int64_t encoder_tokens, decoder_tokens;
  };
  for (const Row& row :
       {Row{"H", 14545305, 7419648, 7125657, 740, 564, 321},
        Row{"M", 14545305, 7419648, 7125657, 740, 276, 33}, Row{"UP", 6042628, 0, 0, 276, 107, 11}}) {
    INFO(row.name);
    const DiffusionPlanner model(diffusion_planner_preset(row.name), at::kMeta);
    CHECK(count(model.parameters()) == row.parameters);
    CHECK(model.parameters().size() == row.tensors);
    CHECK(diffusion_planner_preset(row.name).encoder_tokens() == row.encoder_tokens);
    CHECK(diffusion_planner_preset(row.name).decoder_tokens() == row.decoder_tokens);
    if (row.encoder == 0) continue;
    CHECK(count(model.parameters(), "encoder.") == row.encoder);
    CHECK(count(model.parameters(), "decoder.") == row.decoder);
    for (const auto& [prefix, wanted] :
         std::map<std::string, int64_t>{{"encoder.ego_encoder.", 373568},
                                        {"encoder.neighbor_encoder.", 374720},
                                        {"encoder.static_encoder.", 68608},
                                        {"encoder.lane_encoder.", 377088},
                                        {"encoder.route_encoder.", 377088},
                                        {"encoder.polygon_encoder.", 374272},
                                        {"encoder.line_string_encoder.", 373120},
                                        {"encoder.goal_pose_encoder.", 116224},
                                        {"encoder.ego_shape_encoder.", 116096},
                                        {"encoder.turn_indicator_encoder.", 119552},
                                        {"encoder.fusion.", 4739072},
                                        {"encoder.pos_emb.", 3840},
                                        {"encoder.route_position_embedding", 6400},
                                        {"decoder.dit.blocks.2.", 1974272},
                                        {"decoder.dit.preproj.", 297728},
                                        {"decoder.dit.t_embedder.", 173312},
                                        {"decoder.dit.final_layer.", 729924},
                                        {"decoder.turn_indicator_predictor.", 1365}}) {
      INFO(prefix);
      CHECK(count(model.parameters(), prefix) == wanted);
    }
  }
}

TEST_CASE("names, shapes and order of the parameters are those of the published state dicts") {
  REQUIRE(published_keys("H").size() == 740);
  REQUIRE(published_keys("UP").size() == 276);
  CHECK(keys(DiffusionPlanner(diffusion_planner_preset("H"), at::kMeta).parameters()) == published_keys("H"));
  CHECK(keys(DiffusionPlanner(diffusion_planner_preset("M"), at::kMeta).parameters()) == published_keys("H"));
  CHECK(keys(DiffusionPlanner(diffusion_planner_preset("UP"), at::kMeta).parameters()) ==
        published_keys("UP"));
}

TEST_CASE("initial values are drawn as published and the first output is exactly zero") {
  const Fixture fixture = read_fixture("diffusion_planner/model");
  for (const char* name : {"H", "UP"}) {
    INFO(name);
    const bool upstream = std::string(name) == "UP";
    const std::string encoder = upstream ? "encoder.encoder." : "encoder.";
    const std::string dit = upstream ? "decoder.decoder.dit." : "decoder.dit.";
    const DiffusionPlanner model(small_diffusion_planner_options(name), at::kCPU,
                                 at::detail::createCPUGenerator(7));
    at::NoGradGuard no_grad;
    const Outputs out = evaluate(model, fixture, false);
    CHECK(at::equal(out.output, at::zeros_like(out.output)));
    CHECK_FALSE(at::equal(out.encoding, at::zeros_like(out.encoding)));

    const auto largest = [&](const std::string& key) {
      return parameter(model, key).abs().max().item<double>();
    };
    const auto deviation = [&](const std::string& key) { return parameter(model, key).std().item<double>(); };
    const double attention = std::sqrt(6.0 / (4 * 64)), mixer = std::sqrt(6.0 / 128);
    CHECK(largest(encoder + "fusion.blocks.0.attn.in_proj_weight") == Approx(attention).epsilon(0.01));
    CHECK(largest(encoder + "lane_encoder.blocks.0.tokens_mlp.fc1.weight") == Approx(mixer).epsilon(0.01));
    for (const char* key : {"pos_emb.weight", "neighbor_encoder.type_emb.weight",
                            "lane_encoder.speed_limit_emb.weight", "lane_encoder.unknown_speed_emb.weight"}) {
      INFO(key);
      CHECK(deviation(encoder + key) == Approx(0.02).epsilon(0.25));
      CHECK(largest(encoder + key) > 0.035);  // no uniform numbers of that deviation
    }
    CHECK(deviation(dit + "agent_embedding.weight") == Approx(0.02).epsilon(0.25));
    CHECK(largest(dit + "final_layer.proj.4.weight") == 0);
    CHECK(largest(encoder + "fusion.blocks.0.attn.in_proj_bias") == 0);
    CHECK(at::equal(parameter(model, encoder + "fusion.norm.weight"), at::ones(64)));
    // Modulations start at zero in UP only.
    CHECK((largest(dit + "blocks.1.adaLN_modulation.1.weight") == 0) == upstream);
    CHECK((largest(dit + "final_layer.adaLN_modulation.1.weight") == 0) == upstream);
    if (upstream) {
      CHECK(deviation(dit + "t_embedder.mlp.0.weight") == Approx(0.02).epsilon(0.05));
      CHECK(deviation(encoder + "lane_encoder.traffic_emb.weight") == Approx(0.02).epsilon(0.15));
      continue;
    }
    CHECK(deviation(encoder + "lane_encoder.attribute_emb.weight") == Approx(0.02).epsilon(0.05));
    // Those of the route are drawn like any other weight.
    CHECK(largest(encoder + "route_encoder.attribute_emb.weight") ==
          Approx(std::sqrt(6.0 / 153)).epsilon(0.01));
    CHECK(deviation(encoder + "route_position_embedding") == Approx(1.0).epsilon(0.15));
  }
}

TEST_CASE("outputs and gradients equal the originals' on shared weights") {
  const Fixture fixture = read_fixture("diffusion_planner/model");
  const bool fuses = GENERATE(false, true);
  for (const std::string name : {"H", "M", "UP"}) {
    CAPTURE(name, fuses);
    DiffusionPlanner model = small_diffusion_planner(name);
    model.seam.fuses = [fuses](std::string_view) { return fuses; };
    const Outputs out = evaluate(model, fixture, true);
    // The originals' own fp32 is up to 2.6e-6 (encoding), 3.0e-6 (output) and 5.4e-7 (logit) off.
    CHECK(worst_difference(out.encoding, fixture.at(name + ".encoding")) < 1e-5);
    CHECK(worst_difference(out.output, fixture.at(name + ".output")) < 1e-5);
    at::Tensor loss = (out.output * fixture.at("cotangent.output")).sum();
    if (out.logit.defined()) {
      CHECK(worst_difference(out.logit, fixture.at(name + ".logit")) < 2e-6);
      loss = loss + (out.logit * fixture.at("cotangent.logit")).sum();
    }
    torch::autograd::backward({loss}, {});

    std::map<std::string, at::Tensor> gradients;
    for (const auto& [key, tensor] : model.parameters()) gradients[key] = tensor.grad();
    const at::Tensor norms = fixture.at(name + ".grad_norms_sorted_by_name");
    REQUIRE(norms.size(0) == static_cast<int64_t>(gradients.size()));
    int64_t index = 0, full = 0;
    for (const auto& [key, gradient] : gradients) {
      INFO(key);
      REQUIRE(gradient.defined());
      const auto norm = [](const at::Tensor& of) { return of.to(at::kDouble).norm().item<double>(); };
      const auto wanted = norms[index++].item<double>();
      if (wanted < 1e-9) {  // a bias that the next normalisation removes: fp32 leaves rounding errors
        REQUIRE(key.ends_with(".bias"));
        CHECK(norm(gradient) <= 1e-5 * norm(gradients.at(key.substr(0, key.size() - 4) + "weight")));
      } else {
        CHECK(norm(gradient) == Approx(wanted).epsilon(1e-4));
      }
      const std::string stored = name + ".grad." + key;
      if (!fixture.has(stored)) continue;
      const double most = fixture.at(stored).abs().max().item<double>();
      CHECK(worst_difference(gradient, fixture.at(stored)) <= 1e-4 * most);
      ++full;
    }
    CHECK(full == (name == "H" ? 14 : name == "M" ? 2 : 5));
  }
}
