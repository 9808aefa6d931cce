// DiT, the class-conditional diffusion transformer (Peebles and Xie, 2023), with the names, shapes and
// initialisation of the published code.
//
// Letters: N batch, C channels, S image size, p patch, T = (S/p)² tokens, D hidden, H heads, d = D/H.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/models/dit_options.h>
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::models {

/// weight (out, in): qkv (3 D, D), proj (D, D), the MLP's fc1 and fc2, modulation (6 D, D), whose six parts
/// shift, scale and gate attention and MLP.
struct DitBlock {
  Linear qkv, proj, fc1, fc2, modulation;
};

/// Const functions may be called by several threads at once, as long as no policy is in `seam`.
class Dit {
 public:
  /// Builds the parameters on `device`, initialised as published with draws from `generator`, a generator
  /// of that device (absent: the device's default generator). Throws std::invalid_argument with the first of
  /// problems(options).
  Dit(const DitOptions& options, c10::Device device, std::optional<at::Generator> generator = std::nullopt,
      const ParameterMade& made = {});

  /// The model's output for x (N, C, S, S), t (N) in 0 .. 1000 (may be fractional) and labels y (N), int64;
  /// (N, out_channels, S, S). In training mode labels are dropped and dropout acts, with draws from the
  /// device's default generator; `drop` (N), 1 or 0, replaces the draw of the labels to drop. Throws
  /// c10::Error for other shapes, types or devices.
  at::Tensor forward(at::Tensor x, at::Tensor t, at::Tensor y, bool training,
                     const std::optional<at::Tensor>& drop = std::nullopt) const;

  /// Output with classifier-free guidance: the batch runs twice, with y and with the null label, and
  /// out = null + scale·(class - null) on the first `guided_channels` channels (0: all C), the class
  /// output on the others. Shapes as forward(). Without gradients in mind: call under no-grad. Throws as
  /// forward(), and std::invalid_argument for a model of class_dropout = 0 and for `guided_channels` out of
  /// 0 to C.
  at::Tensor forward_guided(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y, double scale,
                            int64_t guided_channels) const;

  /// All parameters in a fixed order, with the published names. pos_embed needs no gradient.
  const NamedTensors& parameters() const { return parameters_; }
  /// The named modules that run through the seam, in order of execution.
  const std::vector<std::string>& paths() const { return paths_; }
  const DitOptions& options() const { return options_; }

  /// Replace its members to put policies in.
  Seam seam;

 private:
  struct Builder;
  at::Tensor run(std::string_view path, const ModuleFn& fn, Tensors&& inputs) const;
  at::Tensor embed_patches(at::Tensor x) const;
  at::Tensor embed_time(const at::Tensor& t) const;
  at::Tensor embed_label(at::Tensor y, bool training, const std::optional<at::Tensor>& drop) const;
  at::Tensor block(const DitBlock& block, at::Tensor x, const at::Tensor& c, bool training) const;
  at::Tensor attention(const DitBlock& block, at::Tensor qkv) const;
  at::Tensor final_layer(at::Tensor x, const at::Tensor& c) const;
  at::Tensor unpatchify(at::Tensor x) const;

  DitOptions options_;  // resolved: depth, hidden, heads and patch are set
  NamedTensors parameters_;
  std::vector<std::string> paths_;

  Linear patch_proj_;     // weight (D, C, p, p)
  at::Tensor pos_embed_;  // (1, T, D)
  Linear time_in_, time_out_;
  at::Tensor label_table_;  // (classes + 1, D); the last row is the null label, absent without dropout
  std::vector<DitBlock> blocks_;
  Linear final_modulation_, final_linear_;
};

/// The fixed 2-D sin-cos position table (1, grid², hidden), fp32: the first half of the channels encodes
/// the column, the second the row; in each half sines, then cosines.
at::Tensor position_table(int64_t hidden, int64_t grid);

}  // namespace dtk::models
