#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "diffusion_planner/parts.h"

// Parameters are made in the order of the published state dict: a module's own, then those of its parts; so
// the members of a part stand in that order.

namespace dtk::models::diffusion_planner {
namespace {

using Options = DiffusionPlannerOptions;

constexpr double kEmbeddingStd = 0.02;
constexpr int64_t kProjection = 512;  // between a trajectory or its times and D
constexpr int64_t kTurnClasses = 5;
constexpr int64_t kMlpRatio = 4;
constexpr int64_t kRouteTokens = 32, kRouteChannels = 64;  // of UP's route in the decoder

enum class Init { xavier, small, zero };

class Builder {
 public:
  Builder(const Options& options, c10::Device device, std::optional<at::Generator> generator,
          const ParameterMade& made, NamedTensors& parameters)
      : options_(options),
        tensors_(at::TensorOptions().dtype(at::kFloat).device(device)),
        generator_(std::move(generator)),
        made_(made),
        parameters_(parameters) {}

  Encoder encoder(const std::string& path);
  Decoder decoder(const std::string& path);

 private:
  at::Tensor add(const std::string& name, at::Tensor value) {
    value.set_requires_grad(true);
    parameters_.emplace_back(name, value);
    if (made_) made_(name, value);
    return value;
  }
  at::Tensor zeros(at::IntArrayRef shape) { return at::zeros(shape, tensors_); }
  at::Tensor normal(at::IntArrayRef shape, double std) {
    return at::empty(shape, tensors_).normal_(0.0, std, generator_);
  }
  at::Tensor matrix(int64_t out, int64_t in, Init init) {
    if (init == Init::zero) return zeros({out, in});
    if (init == Init::small) return normal({out, in}, kEmbeddingStd);
    const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
    return at::empty({out, in}, tensors_).uniform_(-bound, bound, generator_);
  }
  Linear linear(const std::string& name, int64_t in, int64_t out, Init init = Init::xavier) {
    at::Tensor weight = add(name + ".weight", matrix(out, in, init));
    return {std::move(weight), add(name + ".bias", zeros({out}))};
  }
  at::Tensor embedding(const std::string& name, int64_t rows, int64_t columns) {
    return add(name + ".weight", normal({rows, columns}, kEmbeddingStd));
  }
  Norm norm(const std::string& name, int64_t size) {
    at::Tensor weight = add(name + ".weight", at::ones({size}, tensors_));
    return {std::move(weight), add(name + ".bias", zeros({size}))};
  }
  Mlp mlp(const std::string& path, int64_t in, int64_t inner, int64_t out, double dropout = 0,
          Gelu gelu = Gelu::erf) {
    Linear fc1 = linear(path + ".fc1", in, inner);
    return {std::move(fc1), linear(path + ".fc2", inner, out), gelu, dropout, ""};
  }
  Mha mha(const std::string& path, double dropout) {
    at::Tensor weight = add(path + ".in_proj_weight", matrix(3 * hidden(), hidden(), Init::xavier));
    at::Tensor bias = add(path + ".in_proj_bias", zeros({3 * hidden()}));
    return {std::move(weight),   std::move(bias), linear(path + ".out_proj", hidden(), hidden()),
            *options_.num_heads, dropout,         options_.sequence_first_attention};
  }

  MixerBlock mixer(const std::string& path, int64_t tokens, int64_t channels);
  void sequence(SequenceEncoder& to, const std::string& path, int64_t features, int64_t points);
  void pooled_sequence(SequenceEncoder& to, int64_t features, int64_t points, int64_t tokens,
                       int64_t channels, const std::vector<std::string>& blocks);
  SequenceEncoder sequence(const std::string& path, int64_t features, int64_t points) {
    SequenceEncoder made;
    sequence(made, path, features, points);
    return made;
  }
  LaneEncoder lanes(const std::string& path, int64_t points, Init init);
  VectorEncoder vector(const std::string& path, int64_t floats);
  FusionBlock fusion(const std::string& path);
  PathMlp time(const std::string& path);
  DecoderBlock block(const std::string& path);
  FinalLayer final_layer(const std::string& path);

  int64_t hidden() const { return *options_.hidden_dim; }
  int64_t steps() const { return 1 + *options_.future_len; }

  const Options& options_;
  at::TensorOptions tensors_;
  std::optional<at::Generator> generator_;
  const ParameterMade& made_;
  NamedTensors& parameters_;
};

MixerBlock Builder::mixer(const std::string& path, int64_t tokens, int64_t channels) {
  return {.path = path,
          .norm1 = norm(path + ".norm1", channels),
          .channels = mlp(path + ".channels_mlp", channels, channels, channels, options_.encoder_dropout),
          .norm2 = norm(path + ".norm2", channels),
          .tokens = mlp(path + ".tokens_mlp", tokens, tokens, tokens, options_.encoder_dropout)};
}

void Builder::pooled_sequence(SequenceEncoder& to, int64_t features, int64_t points, int64_t tokens,
                              int64_t channels, const std::vector<std::string>& blocks) {
  to.channel_pre_project = mlp(to.path + ".channel_pre_project", features, channels, channels);
  to.token_pre_project = mlp(to.path + ".token_pre_project", points, tokens, tokens);
  for (const std::string& path : blocks) to.blocks.push_back(mixer(path, tokens, channels));
  to.norm = norm(to.path + ".norm", channels);
  to.emb_project = mlp(to.path + ".emb_project", channels, hidden(), hidden(), options_.encoder_dropout);
}

void Builder::sequence(SequenceEncoder& to, const std::string& path, int64_t features, int64_t points) {
  to.path = path;
  std::vector<std::string> blocks;
  for (int64_t i = 0; i < *options_.encoder_mixer_depth; ++i)
    blocks.push_back(path + ".blocks." + std::to_string(i));
  pooled_sequence(to, features, points, options_.mixer_tokens, options_.mixer_channels, blocks);
}

LaneEncoder Builder::lanes(const std::string& path, int64_t points, Init init) {
  const int64_t channels = options_.mixer_channels;
  LaneEncoder made;
  made.speed_limit_emb = linear(path + ".speed_limit_emb", 1, channels, init);
  made.unknown_speed_emb = embedding(path + ".unknown_speed_emb", 1, channels);
  const int64_t lights = options_.upstream() ? 4 : 25;
  made.attribute_emb =
      linear(path + (options_.upstream() ? ".traffic_emb" : ".attribute_emb"), lights, channels, init);
  sequence(made.sequence, path, 8, points);
  return made;
}

VectorEncoder Builder::vector(const std::string& path, int64_t floats) {
  const int64_t channels = options_.mixer_channels;
  return {.path = path,
          .channel_pre_project = mlp(path + ".channel_pre_project", floats, channels, channels),
          .norm = norm(path + ".norm", channels),
          .emb_project = mlp(path + ".emb_project", channels, hidden(), hidden(), options_.encoder_dropout)};
}

FusionBlock Builder::fusion(const std::string& path) {
  const double dropout = options_.encoder_dropout;
  return {.path = path,
          .norm1 = norm(path + ".norm1", hidden()),
          .attn = mha(path + ".attn", dropout),
          .norm2 = norm(path + ".norm2", hidden()),
          .mlp = mlp(path + ".mlp", hidden(), kMlpRatio * hidden(), hidden(), dropout),
          .drop_path = dropout};
}

Encoder Builder::encoder(const std::string& path) {
  const bool upstream = options_.upstream();
  Encoder made;
  if (!upstream) {
    at::Tensor places = normal({1, *options_.route_num, hidden()}, 1.0);
    made.route_position_embedding = add(path + ".route_position_embedding", std::move(places));
    made.ego = sequence(path + ".ego_encoder", 4, *options_.time_len);
  }
  made.neighbor.type_emb =
      linear(path + ".neighbor_encoder.type_emb", 3, options_.mixer_channels, Init::small);
  sequence(made.neighbor.sequence, path + ".neighbor_encoder", 9, *options_.time_len);
  made.static_objects.path = path + ".static_encoder";
  made.static_objects.mlp =
      mlp(path + ".static_encoder.projection", 10, hidden(), hidden(), options_.encoder_dropout);
  made.lane = lanes(path + ".lane_encoder", *options_.lane_len, Init::small);
  if (!upstream) {
    made.route = lanes(path + ".route_encoder", *options_.route_len, Init::xavier);
    made.polygon = sequence(path + ".polygon_encoder", 5, *options_.polygon_len);
    made.line_string = sequence(path + ".line_string_encoder", 6, *options_.line_string_len);
    made.goal_pose = vector(path + ".goal_pose_encoder", 4);
    made.ego_shape = vector(path + ".ego_shape_encoder", 3);
    made.turn_indicator = vector(path + ".turn_indicator_encoder", *options_.time_len - 1);
  }
  for (int64_t i = 0; i < *options_.encoder_fusion_depth; ++i)
    made.blocks.push_back(fusion(path + ".fusion.blocks." + std::to_string(i)));
  made.fusion_norm_path = path + ".fusion.norm";
  made.norm = norm(made.fusion_norm_path, hidden());
  made.pos_emb_path = path + ".pos_emb";
  made.pos_emb = linear(made.pos_emb_path, 4 + (upstream ? 3 : 10), hidden(), Init::small);
  return made;
}

PathMlp Builder::time(const std::string& path) {
  PathMlp made;
  made.path = path;
  if (!options_.upstream()) {
    made.mlp = mlp(path, steps(), kProjection, hidden());
    made.mlp.first = path + ".fc1";
    return made;
  }
  made.mlp.first = path + ".mlp.0";
  made.mlp.fc1 = linear(made.mlp.first, kTimeFeatures, hidden(), Init::small);
  made.mlp.fc2 = linear(path + ".mlp.2", hidden(), hidden(), Init::small);
  return made;
}

DecoderBlock Builder::block(const std::string& path) {
  const int64_t inner = kMlpRatio * hidden();
  const Init modulation = options_.upstream() ? Init::zero : Init::xavier;
  return {.path = path,
          .residual = !options_.upstream(),
          .norm1 = norm(path + ".norm1", hidden()),
          .attn = mha(path + ".attn", options_.decoder_dropout),
          .norm2 = norm(path + ".norm2", hidden()),
          .mlp1 = mlp(path + ".mlp1", hidden(), inner, hidden(), 0, Gelu::tanh),
          .modulation = linear(path + ".adaLN_modulation.1", hidden(), 6 * hidden(), modulation),
          .norm3 = norm(path + ".norm3", hidden()),
          .cross_attn = mha(path + ".cross_attn", options_.decoder_dropout),
          .norm4 = norm(path + ".norm4", hidden()),
          .mlp2 = mlp(path + ".mlp2", hidden(), inner, hidden(), 0, Gelu::tanh)};
}

FinalLayer Builder::final_layer(const std::string& path) {
  const int64_t inner = kMlpRatio * hidden();
  const Init modulation = options_.upstream() ? Init::zero : Init::xavier;
  return {.path = path,
          .last_path = path + ".proj.4",
          .norm_final = norm(path + ".norm_final", hidden()),
          .norm_in = norm(path + ".proj.0", hidden()),
          .inner = linear(path + ".proj.1", hidden(), inner),
          .norm_out = norm(path + ".proj.3", inner),
          .last = linear(path + ".proj.4", inner, 4 * steps(), Init::zero),
          .modulation = linear(path + ".adaLN_modulation.1", hidden(), 2 * hidden(), modulation)};
}

Decoder Builder::decoder(const std::string& path) {
  const std::string dit = path + ".dit";
  Decoder made;
  if (options_.upstream()) {
    made.route.emplace().path = dit + ".route_encoder";
    const int64_t points = *options_.route_num * *options_.route_len;
    pooled_sequence(*made.route, 4, points, kRouteTokens, kRouteChannels, {made.route->path + ".Mixer"});
  }
  made.agent_embedding = embedding(dit + ".agent_embedding", 2, hidden());
  made.preproj = {dit + ".preproj", mlp(dit + ".preproj", 4 * steps(), kProjection, hidden())};
  made.preproj.mlp.first = dit + ".preproj.fc1";
  made.time = time(dit + ".t_embedder");
  for (int64_t i = 0; i < *options_.decoder_depth; ++i)
    made.blocks.push_back(block(dit + ".blocks." + std::to_string(i)));
  made.final_layer = final_layer(dit + ".final_layer");
  if (options_.upstream()) return made;
  made.turn_path = path + ".turn_indicator_predictor";
  made.turn_indicator = linear(made.turn_path, 2 * (*options_.future_len / 10) + hidden(), kTurnClasses);
  return made;
}

// ---- the order in which modules run ----

using Paths = std::vector<std::string>;

void add_paths(Paths& to, const SequenceEncoder& encoder) {
  to.push_back(encoder.path);
  for (const MixerBlock& block : encoder.blocks) to.push_back(block.path);
}

void add_paths(Paths& to, const PathMlp& part) {
  to.push_back(part.path);
  if (!part.mlp.first.empty()) to.push_back(part.mlp.first);
}

void add_paths(Paths& to, const Encoder& encoder) {
  if (encoder.ego) add_paths(to, *encoder.ego);
  add_paths(to, encoder.neighbor.sequence);
  add_paths(to, encoder.static_objects);
  add_paths(to, encoder.lane.sequence);
  if (encoder.route) add_paths(to, encoder.route->sequence);
  for (const auto* lines : {&encoder.polygon, &encoder.line_string}) {
    if (*lines) add_paths(to, **lines);
  }
  for (const auto* one : {&encoder.goal_pose, &encoder.ego_shape, &encoder.turn_indicator}) {
    if (*one) to.push_back((*one)->path);
  }
  to.push_back(encoder.pos_emb_path);
  for (const FusionBlock& block : encoder.blocks) to.push_back(block.path);
  to.push_back(encoder.fusion_norm_path);
}

void add_paths(Paths& to, const Decoder& decoder) {
  if (decoder.route) add_paths(to, *decoder.route);
  add_paths(to, decoder.preproj);
  add_paths(to, decoder.time);
  for (const DecoderBlock& block : decoder.blocks) to.push_back(block.path);
  to.push_back(decoder.final_layer.path);
  to.push_back(decoder.final_layer.last_path);
  if (decoder.turn_indicator) to.push_back(decoder.turn_path);
}

}  // namespace

Parts build(const Options& options, c10::Device device, std::optional<at::Generator> generator,
            const ParameterMade& made, NamedTensors& parameters, Paths& paths) {
  Builder builder(options, device, std::move(generator), made, parameters);
  const bool nested = options.upstream();  // it wraps both in modules of the same name
  Parts parts;
  parts.encoder = builder.encoder(nested ? "encoder.encoder" : "encoder");
  parts.decoder = builder.decoder(nested ? "decoder.decoder" : "decoder");
  add_paths(paths, parts.encoder);
  add_paths(paths, parts.decoder);
  return parts;
}

}  // namespace dtk::models::diffusion_planner
