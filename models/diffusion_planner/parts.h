// The driving model's encoder and decoder.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <dtk/models/diffusion_planner.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diffusion_planner/blocks.h"

namespace dtk::models::diffusion_planner {

constexpr int64_t kPose = 4;  // x, y, cos, sin

struct PathMlp {
  std::string path;
  Mlp mlp;
};

struct NeighborEncoder {
  Linear type_emb;
  SequenceEncoder sequence;
};

struct LaneEncoder {
  Linear speed_limit_emb;
  at::Tensor unknown_speed_emb;  // (1, channels)
  Linear attribute_emb;          // lights and line types; of UP lights only, named traffic_emb
  SequenceEncoder sequence;
};

/// A few floats, one token.
struct VectorEncoder {
  std::string path;
  Mlp channel_pre_project;
  Norm norm;
  Mlp emb_project;
};

/// UP has tokens of neighbours, static objects and lanes only.
struct Encoder {
  at::Tensor route_position_embedding;  // (1, route_num, D)
  std::optional<SequenceEncoder> ego;
  NeighborEncoder neighbor;
  PathMlp static_objects;
  LaneEncoder lane;
  std::optional<LaneEncoder> route;
  std::optional<SequenceEncoder> polygon, line_string;
  std::optional<VectorEncoder> goal_pose, ego_shape, turn_indicator;
  std::string fusion_norm_path, pos_emb_path;
  std::vector<FusionBlock> blocks;
  Norm norm;
  Linear pos_emb;
};

struct DecoderBlock {
  std::string path;
  bool residual = true;  // of cross-attention and mlp2; UP replaces instead of adding
  Norm norm1;
  Mha attn;
  Norm norm2;
  Mlp mlp1;
  Linear modulation;
  Norm norm3;
  Mha cross_attn;
  Norm norm4;
  Mlp mlp2;
};

struct FinalLayer {
  std::string path, last_path;
  Norm norm_final, norm_in;
  Linear inner;
  Norm norm_out;
  Linear last, modulation;
};

struct Decoder {
  std::string turn_path;
  at::Tensor agent_embedding;  // (2, D): the ego's, everyone else's
  PathMlp preproj;
  PathMlp time;  // of UP fc1 and fc2 are mlp.0 and mlp.2, with SiLU in between
  std::optional<SequenceEncoder> route;
  std::vector<DecoderBlock> blocks;
  FinalLayer final_layer;
  std::optional<Linear> turn_indicator;
};

struct Parts {
  Encoder encoder;
  Decoder decoder;
};

/// Initialised parts; adds their parameters in the order of the published state dict, and the paths of
/// modules. `options` are resolved.
Parts build(const DiffusionPlannerOptions& options, c10::Device device,
            std::optional<at::Generator> generator, const ParameterMade& made, NamedTensors& parameters,
            std::vector<std::string>& paths);

/// (N, O, D)
at::Tensor encode(const Encoder& encoder, const DiffusionPlannerOptions& options, const DrivingScene& scene,
                  Pass pass);

/// (N, D) of the points of the route's lanes, as UP's decoder has it.
at::Tensor encode_route(const SequenceEncoder& encoder, const at::Tensor& route_lanes, Pass pass);

at::Tensor denoise(const Decoder& decoder, const DiffusionPlannerOptions& options, at::Tensor x, at::Tensor t,
                   const DrivingContext& context, Pass pass);

at::Tensor turn_indicator(const Decoder& decoder, const at::Tensor& ego, const at::Tensor& encoding,
                          Pass pass);

}  // namespace dtk::models::diffusion_planner
