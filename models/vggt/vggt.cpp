#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/vggt.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "seam/drawn_layers.h"
#include "vggt/parts.h"

// One operator per statement, and dead tensors reset or moved, as in dit.cpp.

namespace dtk::models {
namespace {

constexpr double kEncoderEps = 1e-6;
constexpr int64_t kMlpRatio = 4, kPose = 9;

}  // namespace

// ---- parameters ----

// Registers parameters in order, and draws their initial values on the device.
struct Vggt::Builder final : DrawnLayers {
  Builder(Vggt& of, c10::Device where, std::optional<at::Generator> generator, const ParameterMade& each)
      : DrawnLayers(std::move(generator)), model(of), device(where), made(each) {}

  Vggt& model;
  c10::Device device;
  const ParameterMade& made;

  at::Tensor add(const std::string& name, const Fill& fill, at::IntArrayRef shape) override {
    const at::ScalarType type =
        name.starts_with("aggregator.") ? model.types_.aggregator : model.types_.heads;
    at::Tensor value = at::empty(shape, at::TensorOptions().dtype(type).device(device));
    fill(value);
    value.set_requires_grad(true);
    model.parameters_.emplace_back(name, value);
    if (made) made(name, value);
    return value;
  }
  // `shape`: of the weight, whose first values are torch.nn.Conv2d's.
  at::Tensor kernel(const std::string& name, at::IntArrayRef shape) {
    return uniform(name, shape, shape[1] * shape[2] * shape[3]);
  }
  Linear conv(const std::string& name, int64_t in, int64_t out, int64_t side) {
    at::Tensor weight = kernel(name + ".weight", {out, in, side, side});
    return {weight, constant(name + ".bias", {out}, 0.0)};
  }

  VggtBlock block(const std::string& name, int64_t width, double scale, bool turns, double eps) {
    VggtBlock block;
    block.eps = eps;
    block.norm1 = norm(name + ".norm1", width);
    block.qkv = linear(name + ".attn.qkv", width, 3 * width);
    if (turns) {
      const int64_t head = width / *model.options_.heads;
      block.q_norm = norm(name + ".attn.q_norm", head);
      block.k_norm = norm(name + ".attn.k_norm", head);
    }
    block.out = linear(name + ".attn.proj", width, width);
    block.scale1 = constant(name + ".ls1.gamma", {width}, scale);
    block.norm2 = norm(name + ".norm2", width);
    block.fc1 = linear(name + ".mlp.fc1", width, kMlpRatio * width);
    block.fc2 = linear(name + ".mlp.fc2", kMlpRatio * width, width);
    block.scale2 = constant(name + ".ls2.gamma", {width}, scale);
    return block;
  }

  void aggregator() {
    const VggtOptions& sizes = model.options_;
    const int64_t width = *sizes.hidden, registers = *sizes.registers, grid = *sizes.image / *sizes.patch;
    const std::string encoder = kEncoder;
    model.class_token_ = normal(encoder + ".cls_token", {1, 1, width}, 1e-6);
    model.positions_ = normal(encoder + ".pos_embed", {1, 1 + grid * grid, width});
    model.register_tokens_ = normal(encoder + ".register_tokens", {1, registers, width}, 1e-6);
    constant(encoder + ".mask_token", {1, width}, 0.0);  // of the encoder's own training; nothing reads it
    model.patches_ = conv(encoder + ".patch_embed.proj", 3, width, *sizes.patch);
    for (int64_t i = 0; i < *sizes.encoder; ++i)
      model.encoder_.push_back(
          block(encoder + ".blocks." + std::to_string(i), width, 1.0, /*turns=*/false, kEncoderEps));
    model.encoder_norm_ = norm(encoder + ".norm", width);
    model.camera_tokens_ = normal("aggregator.camera_token", {1, 2, 1, width}, 1e-6);
    model.frame_registers_ = normal("aggregator.register_token", {1, 2, registers, width}, 1e-6);
    for (const bool global : {false, true}) {
      for (int64_t i = 0; i < *sizes.depth; ++i)
        (global ? model.global_blocks_ : model.frame_blocks_)
            .push_back(block(pair_path(global, i), width, 0.01, /*turns=*/true, kVggtEps));
    }
  }

  void camera_head() {
    const int64_t width = 2 * *model.options_.hidden;
    const std::string name = "camera_head";
    VggtCameraHead head;
    for (int64_t i = 0; i < *model.options_.trunk; ++i)
      head.trunk.push_back(
          block(name + ".trunk." + std::to_string(i), width, 0.01, /*turns=*/false, kVggtEps));
    head.token_norm = norm(name + ".token_norm", width);
    head.trunk_norm = norm(name + ".trunk_norm", width);
    head.empty_pose = constant(name + ".empty_pose_tokens", {1, 1, kPose}, 0.0);
    head.embed = linear(name + ".embed_pose", kPose, width);
    head.modulation = linear(name + ".poseLN_modulation.1", width, 3 * width);
    head.fc1 = linear(name + ".pose_branch.fc1", width, width / 2);
    head.fc2 = linear(name + ".pose_branch.fc2", width / 2, kPose);
    model.camera_ = std::move(head);
  }

  VggtConvUnit unit(const std::string& name, int64_t width) {
    VggtConvUnit unit;
    unit.conv1 = conv(name + ".conv1", width, width, 3);
    unit.conv2 = conv(name + ".conv2", width, width, 3);
    return unit;
  }

  void dense_head(const std::string& name, int64_t outputs, bool is_of_depths) {
    const VggtOptions& sizes = model.options_;
    const int64_t features = *sizes.features;
    VggtDenseHead head;
    head.name = name;
    head.is_of_depths = is_of_depths;
    head.norm = norm(name + ".norm", 2 * *sizes.hidden);
    for (size_t i = 0; i < 4; ++i)
      head.projects.at(i) =
          conv(name + ".projects." + std::to_string(i), 2 * *sizes.hidden, (*sizes.widths)[i], 1);
    for (const auto& [i, side] :
         {std::pair<size_t, int64_t>{0, 4}, {1, 2}, {3, 3}})  // the first two transposed
      head.resizes.at(i) =
          conv(name + ".resize_layers." + std::to_string(i), (*sizes.widths)[i], (*sizes.widths)[i], side);
    const std::string scratch = name + ".scratch";
    for (size_t i = 0; i < 4; ++i)
      head.to_features.at(i) = kernel(scratch + ".layer" + std::to_string(i + 1) + "_rn.weight",
                                      {features, (*sizes.widths)[i], 3, 3});
    for (size_t i = 0; i < 4; ++i) {
      const std::string fusion = scratch + ".refinenet" + std::to_string(i + 1);
      head.fusions.at(i).out = conv(fusion + ".out_conv", features, features, 1);
      if (i < 3) head.fusions.at(i).of_tap = unit(fusion + ".resConfUnit1", features);
      head.fusions.at(i).of_sum = unit(fusion + ".resConfUnit2", features);
    }
    constexpr int64_t kLast = 32;
    head.out1 = conv(scratch + ".output_conv1", features, features / 2, 3);
    head.out2 = conv(scratch + ".output_conv2.0", features / 2, kLast, 3);
    head.out3 = conv(scratch + ".output_conv2.2", kLast, outputs, 1);
    model.dense_.push_back(std::move(head));
  }

  void paths() {
    std::vector<std::string>& paths = model.paths_;
    paths.emplace_back(kEncoder);
    for (size_t i = 0; i < model.encoder_.size(); ++i)
      paths.push_back(std::string(kEncoder) + ".blocks." + std::to_string(i));
    paths.push_back(std::string(kEncoder) + ".norm");
    const auto& taps = *model.options_.taps;
    for (int64_t pair = 0; pair < *model.options_.depth; ++pair) {
      for (const bool global : {false, true}) paths.push_back(pair_path(global, pair));
      if (std::find(taps.begin(), taps.end(), pair) == taps.end()) continue;
      for (const VggtDenseHead& head : model.dense_) paths.push_back(project_path(head.name, pair));
    }
    if (model.camera_) paths.emplace_back("camera_head");
    for (const VggtDenseHead& head : model.dense_) paths.push_back(head.name);
  }
};

Vggt::Vggt(const VggtOptions& options, c10::Device device, std::optional<at::Generator> generator,
           VggtTypes types, const ParameterMade& made)
    : options_(resolved(options)), types_(types) {
  if (const auto found = problems(options); !found.empty())
    throw std::invalid_argument(found.front().message);
  const at::NoGradGuard no_grad;
  Builder build(*this, device, std::move(generator), made);
  build.aggregator();
  if (options_.camera) build.camera_head();
  if (options_.depths) build.dense_head("depth_head", 2, /*is_of_depths=*/true);
  if (options_.points) build.dense_head("point_head", 4, /*is_of_depths=*/false);
  build.paths();
}

// ---- forward ----

// A policy may recompute fn in the backward pass, when everything else of this call is gone.
at::Tensor Vggt::run(const std::string& path, std::function<at::Tensor(Tensors&&)> fn,
                     Tensors&& inputs) const {
  const auto as_list = [fn = std::move(fn)](Tensors&& in) { return pack(fn(std::move(in))); };
  return std::move(seam.run(path, as_list, std::move(inputs)).front());
}

std::vector<std::string> Vggt::dense_heads() const {
  std::vector<std::string> names;
  for (const VggtDenseHead& head : dense_) names.push_back(head.name);
  return names;
}

std::vector<at::Tensor> Vggt::poses(at::Tensor tokens) const {
  const auto fn = [this](Tensors&& in) { return rounds(std::move(in[0])); };
  return seam.run("camera_head", fn, pack(std::move(tokens)));
}

VggtOutputs Vggt::forward(at::Tensor pictures) const {
  if (pictures.dim() != 5 || pictures.size(2) != 3)
    throw std::invalid_argument("Vggt: pictures of shape " + c10::str(pictures.sizes()) +
                                "; allowed: (B, S, 3, H, W)");
  const VggtSize size = size_of(pictures.size(0), pictures.size(1), pictures.size(3), pictures.size(4));
  pictures = pictures.flatten(0, 1);
  at::Tensor tokens =
      encode(size, [&](int64_t first, int64_t count) { return pictures.narrow(0, first, count); });
  pictures.reset();
  VggtTaps taps = aggregate(std::move(tokens), size);
  VggtOutputs outputs;
  if (camera_) outputs.poses = poses(std::move(taps.camera)).back();
  for (size_t i = 0; i < dense_.size(); ++i) {
    Tensors found = dense(i, taps, size);
    for (at::Tensor& one : found) one = one.unflatten(0, {size.scenes, size.frames});
    const bool has_depths = dense_[i].is_of_depths;
    (has_depths ? outputs.depths : outputs.points) = std::move(found[0]);
    (has_depths ? outputs.depth_confidence : outputs.points_confidence) = std::move(found[1]);
  }
  return outputs;
}

}  // namespace dtk::models
