// VGGT, which maps pictures of a scene to cameras, depths and points (Wang et al., 2025): a DINOv2 encoder
// with registers, blocks that attend within a frame and over all by turns, a camera head and dense heads
// (DPT), with the names of the published checkpoint. Its track head is not built.
//
// Letters: B scenes, S frames of each, H and W of a picture, p of a patch, h = H/p and w = W/p, P = h·w
// tokens of a frame beside R special ones, C hidden.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>
#include <dtk/models/vggt_options.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtk::models {

/// x + γ1·attention(norm1 x), then x + γ2·mlp(norm2 x).
struct VggtBlock {
  Linear norm1, qkv, out, norm2, fc1, fc2;  // of a norm: weight and bias
  Linear q_norm, k_norm;                    // of a head; undefined in the encoder and the camera head
  at::Tensor scale1, scale2;
  double eps = 1e-5;  // of norm1 and norm2
};

/// Poses from the camera tokens, in rounds: each runs the trunk on the tokens, modulated by the pose so far,
/// and adds to that pose.
struct VggtCameraHead {
  Linear token_norm, trunk_norm, embed, modulation, fc1, fc2;
  at::Tensor empty_pose;  // (1, 1, 9)
  std::vector<VggtBlock> trunk;
};

/// conv2(relu(conv1(relu(x)))) + relu(x).
struct VggtConvUnit {
  Linear conv1, conv2;  // weight (D, D, 3, 3)
};
/// out(of_sum(x + of_tap(tap))), brought to the size of the next tap before `out`.
struct VggtFusion {
  std::optional<VggtConvUnit> of_tap;  // none in the first that runs
  VggtConvUnit of_sum;
  Linear out;
};

/// A dense head: features of four taps, fused from the last to the first and brought to the picture's size.
struct VggtDenseHead {
  std::string name;
  bool is_of_depths = true;  // else of points
  Linear norm;
  std::array<Linear, 4> projects, resizes;  // of the third tap nothing is resized
  std::array<at::Tensor, 4> to_features;    // (D, width, 3, 3)
  std::array<VggtFusion, 4> fusions;        // by tap
  Linear out1, out2, out3;
};

/// Of pictures (B, S, 3, H, W).
struct VggtSize {
  int64_t scenes = 0, frames = 0, height = 0, width = 0;  // B, S, H, W
  int64_t rows = 0, columns = 0;                          // h, w
};

/// Undefined for heads that are not there.
struct VggtOutputs {
  at::Tensor poses;                     // (B, S, 9): translation, quaternion x y z w, fields of view
  at::Tensor depths, depth_confidence;  // (B, S, H, W)
  at::Tensor points;                    // (B, S, H, W, 3)
  at::Tensor points_confidence;         // (B, S, H, W)
};

/// What the heads read of the aggregator, in the form that Seam::taps says; with gradients: projected.
struct VggtTaps {
  at::Tensor camera;                            // (B, S, 2C): the camera tokens of the last pair
  std::vector<std::array<at::Tensor, 4>> rows;  // of each dense head, (B·S, P, width); projected
  std::vector<at::Tensor> entries;              // else: (B·S, R + P, 2C), of the four pairs or of all
};

/// Numbers that weights are held in.
struct VggtTypes {
  at::ScalarType aggregator = at::kFloat, heads = at::kFloat;
};

/// Const functions may be called by several threads at once, as long as no policy is in `seam`.
class Vggt {
 public:
  /// Frames `first` to `first + count` of all B·S, (count, 3, H, W) in [0, 1], on any device: asked for from
  /// the first to the last, each once.
  using Read = std::function<at::Tensor(int64_t first, int64_t count)>;
  /// A dense head's result of frames from `first` on, likewise: values (count, H, W), of points (count, H, W,
  /// 3), and confidence (count, H, W).
  using Give = std::function<void(int64_t first, at::Tensor values, at::Tensor confidence)>;

  /// Builds the parameters on `device`, drawn from `generator`, a generator of that device (absent: the
  /// device's default generator). Throws std::invalid_argument with the first of problems(options).
  Vggt(const VggtOptions& options, c10::Device device, std::optional<at::Generator> generator = std::nullopt,
       VggtTypes types = {}, const ParameterMade& made = {});

  /// Of pictures (B, S, 3, H, W) in [0, 1], H and W divisible by p. Throws std::invalid_argument for others.
  /// What a head reads of a tap is projected where it arises, so that 2,816 numbers a token wait (preset 1b),
  /// not the tap's 8,192.
  VggtOutputs forward(at::Tensor pictures) const;

  // The same in its parts, for a program that reads frames and takes results a few at a time. As many run
  // at once as the seam's rows() lets.

  /// Tokens (B·S, R + P, C) of the encoder, with the special ones that the aggregator adds. Throws
  /// std::invalid_argument for a size whose sides p does not divide, or of no frames.
  at::Tensor encode(const VggtSize& size, const Read& read) const;
  /// What the heads read, of tokens (B·S, R + P, C) through all pairs of blocks.
  VggtTaps aggregate(at::Tensor tokens, const VggtSize& size) const;
  /// Poses (B, S, 9) of each of the four rounds, the last best, of the camera tokens.
  std::vector<at::Tensor> poses(at::Tensor tokens) const;
  /// The result of dense head `head`, a number of dense_heads(), as Give has it, of all frames; with `give`
  /// that is called, and what is returned has no numbers. Takes what no head behind it reads of the taps, but
  /// for a list of all pairs.
  Tensors dense(size_t head, VggtTaps& taps, const VggtSize& size, const Give& give = nullptr) const;

  /// "depth_head", "point_head": those that are there.
  std::vector<std::string> dense_heads() const;
  /// Whether dense head `head` is the one of depths, not of points.
  bool is_of_depths(size_t head) const { return dense_.at(head).is_of_depths; }
  /// Throws std::invalid_argument for frames of another shape than (.., H, W) with sides that p divides.
  VggtSize size_of(int64_t scenes, int64_t frames, int64_t height, int64_t width) const;
  /// All parameters in a fixed order, under the published names.
  const NamedTensors& parameters() const { return parameters_; }
  /// The named modules that run through the seam, in order of execution.
  const std::vector<std::string>& paths() const { return paths_; }
  const VggtOptions& options() const { return options_; }

  /// Replace its members to put policies in.
  Seam seam;

 private:
  struct Builder;
  at::Tensor run(const std::string& path, std::function<at::Tensor(Tensors&&)> fn, Tensors&& inputs) const;
  /// (n, 3, H, W) -> (n, 1 + R - 1 + P, C)
  at::Tensor embedded(at::Tensor pictures, const VggtSize& size) const;
  at::Tensor positions(const VggtSize& size) const;
  at::Tensor with_special_tokens(at::Tensor x, int64_t first, int64_t frames_of_scene) const;
  /// x (N, T, width); cosine and sine (1, T, 1, width/heads) of the tokens' places, undefined where none
  /// turn.
  at::Tensor through(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                     const at::Tensor& sine) const;
  /// The same without gradient, of tokens a few at a time: keys and values of all come first.
  at::Tensor through_by_tokens(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                               const at::Tensor& sine) const;
  at::Tensor attended(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                      const at::Tensor& sine) const;
  /// x + γ2·mlp(norm2 x), of rows on their own.
  at::Tensor fed(const VggtBlock& block, at::Tensor x) const;
  at::Tensor through_pair(bool global, int64_t pair, at::Tensor x, const Tensors& places) const;
  void tap(VggtTaps& taps, int64_t pair, at::Tensor frames, at::Tensor all, const VggtSize& size) const;
  Tensors rounds(at::Tensor tokens) const;  // as poses()
  /// What a round of the camera head adds to `pose`.
  at::Tensor correction(const at::Tensor& tokens, const at::Tensor& pose) const;
  at::Tensor projected(const VggtDenseHead& head, size_t tap, at::Tensor x) const;
  at::Tensor fused(const VggtDenseHead& head, std::array<at::Tensor, 4> taps, const VggtSize& size) const;
  Tensors of_frames(const VggtDenseHead& head, Tensors&& taps, bool are_projected,
                    const VggtSize& size) const;

  VggtOptions options_;  // resolved
  VggtTypes types_;
  NamedTensors parameters_;
  std::vector<std::string> paths_;

  at::Tensor class_token_, positions_, register_tokens_;  // (1, 1, C), (1, 1 + grid², C), (1, R - 1, C)
  Linear patches_, encoder_norm_;                         // weight (C, 3, p, p)
  std::vector<VggtBlock> encoder_, frame_blocks_, global_blocks_;
  at::Tensor camera_tokens_,
      frame_registers_;  // (1, 2, 1, C), (1, 2, R - 1, C): of the first frame, of others
  std::optional<VggtCameraHead> camera_;
  std::vector<VggtDenseHead> dense_;
};

}  // namespace dtk::models
