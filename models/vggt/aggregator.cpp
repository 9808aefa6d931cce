// The encoder, the blocks that attend by turns, and the camera head.
#include <ATen/ATen.h>
#include <dtk/models/vggt.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "vggt/parts.h"

namespace dtk::models {
namespace {

constexpr double kModulatedEps = 1e-6;
constexpr int kRounds = 4;

at::Tensor layer_norm(const at::Tensor& x, const Linear& norm, double eps) {
  return at::layer_norm(x, {x.size(-1)}, norm.weight, norm.bias, eps);
}

at::Tensor constants(at::ArrayRef<double> values, const at::Tensor& like) {
  return at::tensor(values, like.options().requires_grad(false));
}

// The halves of each half of a head's channels turn against each other: x (N, heads, T, d).
at::Tensor turned_by_places(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  at::Tensor parts = x.unflatten(-1, {2, 2, x.size(-1) / 4});
  at::Tensor other = at::stack({parts.select(-2, 1).neg(), parts.select(-2, 0)}, -2);
  other = other.flatten(-3);
  other = other * sine;
  return at::addcmul(other, x, cosine);
}

// Cosines and sines (T, d) of places (row, column), known from the picture's size: special tokens stand at 0,
// patches from 1 on. The first half of the channels turns by the row, the second by the column; each by
// d/4 frequencies 100^(-4i/d).
Tensors rotation(const VggtSize& size, int64_t special, int64_t width, int64_t repeats,
                 const at::Tensor& like) {
  const at::TensorOptions options = like.options().dtype(at::kFloat).requires_grad(false);
  at::Tensor frequencies = at::arange(width / 4, options);
  frequencies = at::pow(100.0, frequencies * (-4.0 / static_cast<double>(width)));
  at::Tensor angles = at::zeros({special + size.rows * size.columns, 2}, options);
  at::Tensor patches = angles.slice(0, special).view({size.rows, size.columns, 2});
  patches.select(2, 0).copy_(at::arange(1, size.rows + 1, options).unsqueeze(1));
  patches.select(2, 1).copy_(at::arange(1, size.columns + 1, options));
  angles = angles.unsqueeze(2) * frequencies;  // (T, 2, d/4)
  angles = angles.unsqueeze(2).expand({-1, -1, 2, -1}).flatten(1);
  if (repeats > 1) angles = angles.repeat({repeats, 1});
  return pack(angles.cos().to(like.scalar_type()), angles.sin().to(like.scalar_type()));
}

}  // namespace

VggtSize Vggt::size_of(const at::Tensor& pictures) const {
  const int64_t patch = *options_.patch;
  const bool fits = pictures.dim() == 5 && pictures.size(2) == 3 && pictures.size(3) > 0 &&
                    pictures.size(4) > 0 && pictures.size(3) % patch == 0 && pictures.size(4) % patch == 0;
  if (!fits) {
    throw std::invalid_argument("Vggt: pictures of shape " + c10::str(pictures.sizes()) +
                                "; allowed: (B, S, 3, H, W), H and W divisible by " + std::to_string(patch));
  }
  return {pictures.size(0), pictures.size(1),         pictures.size(3),
          pictures.size(4), pictures.size(3) / patch, pictures.size(4) / patch};
}

at::Tensor Vggt::through(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                         const at::Tensor& sine) const {
  at::Tensor h = layer_norm(x, block.norm1, block.eps);
  h = attended(block, std::move(h), cosine, sine);
  h = h * block.scale1;
  x = x + h;
  h.reset();
  h = layer_norm(x, block.norm2, block.eps);
  h = block.fc1(h);
  h = at::gelu(h);
  h = block.fc2(h);
  h = h * block.scale2;
  return x + h;
}

at::Tensor Vggt::attended(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                          const at::Tensor& sine) const {
  x = block.qkv(x);
  x = x.unflatten(2, {3, *options_.heads, -1});
  x = x.permute({2, 0, 3, 1, 4});
  at::Tensor q = x.select(0, 0), k = x.select(0, 1), v = x.select(0, 2);
  x.reset();
  if (block.q_norm.weight.defined()) {
    q = layer_norm(q, block.q_norm, kVggtEps);
    q = turned_by_places(q, cosine, sine);
    k = layer_norm(k, block.k_norm, kVggtEps);
    k = turned_by_places(k, cosine, sine);
  }
  x = seam.attention(std::move(q), std::move(k), std::move(v), {});
  x = seam.keep("attn_out", std::move(x));
  x = x.transpose(1, 2).flatten(2);
  return block.out(x);
}

at::Tensor Vggt::positions(const VggtSize& size) const {
  const int64_t grid = *options_.image / *options_.patch;
  if (size.rows == grid && size.columns == grid) return positions_;
  at::Tensor patches = positions_.slice(1, 1).unflatten(1, {grid, grid}).permute({0, 3, 1, 2});
  patches = at::_upsample_bicubic2d_aa(patches, {size.rows, size.columns}, /*align_corners=*/false);
  patches = patches.flatten(2).transpose(1, 2);
  return at::cat({positions_.slice(1, 0, 1), patches}, 1);
}

// (B, S, 3, H, W) -> (B·S, 1 + R - 1 + P, C)
at::Tensor Vggt::embedded(at::Tensor pictures, const VggtSize& size) const {
  at::Tensor x = pictures.flatten(0, 1).to(patches_.weight.scalar_type());
  pictures.reset();
  x = x - constants({0.485, 0.456, 0.406}, x).view({3, 1, 1});
  x = x / constants({0.229, 0.224, 0.225}, x).view({3, 1, 1});
  x = at::conv2d(x, patches_.weight, patches_.bias, {*options_.patch, *options_.patch});
  x = x.flatten(2).transpose(1, 2);
  x = at::cat({class_token_.expand({x.size(0), -1, -1}), x}, 1);
  x = x + positions(size);
  return at::cat({x.slice(1, 0, 1), register_tokens_.expand({x.size(0), -1, -1}), x.slice(1, 1)}, 1);
}

at::Tensor Vggt::encode(at::Tensor pictures) const {
  const VggtSize size = size_of(pictures);
  at::Tensor x = run(
      kEncoder, [&](Tensors&& in) { return embedded(std::move(in[0]), size); }, pack(std::move(pictures)));
  for (size_t i = 0; i < encoder_.size(); ++i) {
    x = run(
        std::string(kEncoder) + ".blocks." + std::to_string(i),
        [&](Tensors&& in) { return through(encoder_[i], std::move(in[0]), {}, {}); }, pack(std::move(x)));
  }
  const auto last = [&](Tensors&& in) {
    at::Tensor patches = in[0].slice(1, options_.special_tokens());
    return layer_norm(patches, encoder_norm_, encoder_.front().eps);
  };
  return run(std::string(kEncoder) + ".norm", last, pack(std::move(x)));
}

// The first frame's tokens differ from those of the others: (B·S, P, C) -> (B·S, R + P, C).
at::Tensor Vggt::with_special_tokens(at::Tensor x, const VggtSize& size) const {
  const auto of_frames = [&](const at::Tensor& tokens) {  // (1, 2, n, C)
    const int64_t others = size.frames - 1, n = tokens.size(2), width = tokens.size(3);
    at::Tensor all = at::cat({tokens.slice(1, 0, 1), tokens.slice(1, 1).expand({1, others, n, width})}, 1);
    return all.expand({size.scenes, -1, -1, -1}).flatten(0, 1);
  };
  return at::cat({of_frames(camera_tokens_), of_frames(frame_registers_), x}, 1);
}

void Vggt::aggregate(at::Tensor pictures, const std::vector<int64_t>& wanted,
                     const std::function<void(int64_t pair, at::Tensor x)>& tap) const {
  const VggtSize size = size_of(pictures);
  at::Tensor x = encode(std::move(pictures));
  x = with_special_tokens(std::move(x), size);
  const int64_t special = options_.special_tokens(), head = *options_.hidden / *options_.heads;
  const Tensors of_frame = rotation(size, special, head, 1, x),
                of_all = rotation(size, special, head, size.frames, x);
  const auto through_pair = [&](bool global, int64_t pair, at::Tensor in) {
    const VggtBlock& block = (global ? global_blocks_ : frame_blocks_)[static_cast<size_t>(pair)];
    const Tensors& places = global ? of_all : of_frame;
    const auto fn = [&](Tensors&& inputs) {
      return through(block, std::move(inputs[0]), inputs[1], inputs[2]);
    };
    Tensors inputs = pack(std::move(in));
    inputs.insert(inputs.end(), places.begin(), places.end());
    return run(pair_path(global, pair), fn, std::move(inputs));
  };
  for (int64_t pair = 0; pair <= wanted.back(); ++pair) {
    const bool taps = std::find(wanted.begin(), wanted.end(), pair) != wanted.end();
    at::Tensor frames = through_pair(false, pair, std::move(x));
    at::Tensor all = frames.unflatten(0, {size.scenes, size.frames}).flatten(1, 2);
    if (!taps) frames.reset();
    x = through_pair(true, pair, std::move(all));
    x = x.unflatten(1, {size.frames, -1}).flatten(0, 1);
    if (!taps) continue;
    at::Tensor both = at::cat({frames, x}, 2);
    frames.reset();
    tap(pair, both.unflatten(0, {size.scenes, size.frames}));
  }
}

at::Tensor Vggt::correction(const at::Tensor& tokens, const at::Tensor& pose) const {
  at::Tensor x = camera_->embed(pose);
  x = camera_->modulation(at::silu(x));
  const auto parts = x.chunk(3, -1);  // shift, scale, gate
  x = at::layer_norm(tokens, {tokens.size(-1)}, {}, {}, kModulatedEps);
  x = x * (parts[1] + 1);
  x = x + parts[0];
  x = x * parts[2];
  x = x + tokens;
  for (const VggtBlock& block : camera_->trunk) x = through(block, std::move(x), {}, {});
  x = layer_norm(x, camera_->trunk_norm, kVggtEps);
  x = at::gelu(camera_->fc1(x));
  return camera_->fc2(x);
}

std::vector<at::Tensor> Vggt::poses(at::Tensor tokens) const {
  tokens = layer_norm(tokens, camera_->token_norm, kVggtEps);
  at::Tensor pose = camera_->empty_pose.expand({tokens.size(0), tokens.size(1), -1});
  std::vector<at::Tensor> rounds;
  for (int round = 0; round < kRounds; ++round) {
    // A round learns to correct the one before, which does not learn from it.
    at::Tensor more = correction(tokens, round == 0 ? pose : pose.detach());
    pose = round == 0 ? more : pose + more;
    rounds.push_back(at::cat({pose.slice(2, 0, 7), at::relu(pose.slice(2, 7))}, 2));
  }
  return rounds;
}

}  // namespace dtk::models
