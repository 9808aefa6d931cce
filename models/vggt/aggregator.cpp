// The encoder, the blocks that attend by turns, and the camera head.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/ops.h>
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
  return at::tensor(values, at::kFloat).to(like.options().requires_grad(false));
}

// The halves of each half of a head's channels turn against each other: x (N, T, heads, d).
at::Tensor turned_by_places(const Seam& seam, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
  if (seam.fuses("dtk::rotate")) return ops::rotate(x, cosine[0].squeeze(1), sine[0].squeeze(1), 2);
  at::Tensor parts = x.unflatten(-1, {2, 2, x.size(-1) / 4});
  at::Tensor other = at::stack({parts.select(-2, 1).neg(), parts.select(-2, 0)}, -2);
  other = other.flatten(-3);
  other = other * sine;
  return at::addcmul(other, x, cosine);
}

// Cosines and sines (1, T, 1, d) of places (row, column), known from the picture's size: special tokens stand
// at 0, patches from 1 on. The first half of the channels turns by the row, the second by the column; each by
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
  angles = angles.unsqueeze(0).unsqueeze(2);
  return pack(angles.cos().to(like.scalar_type()), angles.sin().to(like.scalar_type()));
}

}  // namespace

VggtSize Vggt::size_of(int64_t scenes, int64_t frames, int64_t height, int64_t width) const {
  const int64_t patch = *options_.patch;
  const bool fits =
      scenes > 0 && frames > 0 && height > 0 && width > 0 && height % patch == 0 && width % patch == 0;
  if (!fits) {
    throw std::invalid_argument("Vggt: " + std::to_string(scenes) + " scenes of " + std::to_string(frames) +
                                " frames of " + std::to_string(height) + " x " + std::to_string(width) +
                                "; allowed: sides divisible by " + std::to_string(patch) +
                                ", and one scene and frame at the least");
  }
  return {scenes, frames, height, width, height / patch, width / patch};
}

at::Tensor Vggt::through(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                         const at::Tensor& sine) const {
  at::Tensor h = layer_norm(x, block.norm1, block.eps);
  h = attended(block, std::move(h), cosine, sine);
  h = h * block.scale1;
  x = x + h;
  h.reset();
  const int64_t samples = x.size(0), tokens = x.size(1);
  x = x.reshape({1, samples * tokens, -1});
  const auto fn = [&](Tensors&& in) { return pack(fed(block, std::move(in[0]))); };
  x = std::move(seam.rows("mlp", fn, pack(std::move(x)), {.dim = 1, .each = 1}).front());
  return x.view({samples, tokens, -1});
}

// What is normed lies by tokens, so that the result of attention does, too, and its heads join without a
// copy.
at::Tensor Vggt::attended(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                          const at::Tensor& sine) const {
  x = block.qkv(x);
  x = x.unflatten(2, {3, *options_.heads, -1});
  at::Tensor q = x.select(2, 0), k = x.select(2, 1), v = x.select(2, 2);  // (N, T, heads, d)
  x.reset();
  if (block.q_norm.weight.defined()) {
    q = layer_norm(q, block.q_norm, kVggtEps);
    q = turned_by_places(seam, q, cosine, sine);
    k = layer_norm(k, block.k_norm, kVggtEps);
    k = turned_by_places(seam, k, cosine, sine);
  }
  q = q.transpose(1, 2);
  k = k.transpose(1, 2);
  v = v.transpose(1, 2);
  x = seam.attention(std::move(q), std::move(k), std::move(v), {});
  x = seam.keep("attn_out", std::move(x));
  x = x.transpose(1, 2).flatten(2);
  return block.out(x);
}

at::Tensor Vggt::through_by_tokens(const VggtBlock& block, at::Tensor x, const at::Tensor& cosine,
                                   const at::Tensor& sine) const {
  const int64_t heads = *options_.heads, width = x.size(2);
  const at::Tensor &weight = block.qkv.weight, &bias = block.qkv.bias;
  const Linear query{weight.slice(0, 0, width), bias.slice(0, 0, width)},
      others{weight.slice(0, width), bias.slice(0, width)};
  const auto keys_and_values = [&](Tensors&& in) {
    at::Tensor h = layer_norm(in[0], block.norm1, block.eps);
    h = others(h);
    h = h.unflatten(2, {2, heads, -1});
    at::Tensor k = h.select(2, 0), v = h.select(2, 1);
    h.reset();
    k = layer_norm(k, block.k_norm, kVggtEps);
    k = turned_by_places(seam, k, in[1], in[2]);
    return pack(std::move(k), std::move(v));
  };
  const RowsOf tokens{.dim = 1, .each = 1};
  const Tensors kv = seam.rows("keys", keys_and_values, pack(x, cosine, sine), tokens);
  const at::Tensor k = kv[0].transpose(1, 2), v = kv[1].transpose(1, 2);  // (N, heads, T, d)
  const auto attended_and_fed = [&](Tensors&& in) {
    at::Tensor h = layer_norm(in[0], block.norm1, block.eps);
    h = query(h);
    h = h.unflatten(2, {heads, -1});
    h = layer_norm(h, block.q_norm, kVggtEps);
    h = turned_by_places(seam, h, in[1], in[2]);
    h = h.transpose(1, 2);
    h = seam.attention(std::move(h), k, v, {});
    h = h.transpose(1, 2).flatten(2);
    h = block.out(h);
    h = h * block.scale1;
    h = in[0] + h;
    return pack(fed(block, std::move(h)));
  };
  return std::move(seam.rows("queries", attended_and_fed, pack(std::move(x), cosine, sine), tokens).front());
}

at::Tensor Vggt::fed(const VggtBlock& block, at::Tensor x) const {
  at::Tensor h = layer_norm(x, block.norm2, block.eps);
  h = block.fc1(h);
  h = at::gelu(h);
  h = block.fc2(h);
  h = h * block.scale2;
  return x + h;
}

at::Tensor Vggt::positions(const VggtSize& size) const {
  const int64_t grid = *options_.image / *options_.patch;
  if (size.rows == grid && size.columns == grid) return positions_;
  at::Tensor patches = positions_.slice(1, 1).unflatten(1, {grid, grid}).permute({0, 3, 1, 2});
  patches = patches.to(at::kFloat);  // narrower ones have no such kernel on a CPU
  patches = at::_upsample_bicubic2d_aa(patches, {size.rows, size.columns}, /*align_corners=*/false);
  patches = patches.to(positions_.scalar_type());
  patches = patches.flatten(2).transpose(1, 2);
  return at::cat({positions_.slice(1, 0, 1), patches}, 1);
}

at::Tensor Vggt::embedded(at::Tensor pictures, const VggtSize& size) const {
  at::Tensor x = pictures.to(patches_.weight.options());
  pictures.reset();
  x = x - constants({0.485, 0.456, 0.406}, x).view({3, 1, 1});
  x = x / constants({0.229, 0.224, 0.225}, x).view({3, 1, 1});
  x = at::conv2d(x, patches_.weight, patches_.bias, {*options_.patch, *options_.patch});
  x = x.flatten(2).transpose(1, 2);
  x = at::cat({class_token_.expand({x.size(0), -1, -1}), x}, 1);
  x = x + positions(size);
  return at::cat({x.slice(1, 0, 1), register_tokens_.expand({x.size(0), -1, -1}), x.slice(1, 1)}, 1);
}

at::Tensor Vggt::encode(const VggtSize& size, const Read& read) const {
  const int64_t all = size.scenes * size.frames, patches = size.rows * size.columns;
  int64_t first = 0;
  const auto of_some = [&](Tensors&& in) {
    const int64_t count = in[0].size(0);
    at::Tensor x = run(
        kEncoder, [this, size](Tensors&& pictures) { return embedded(std::move(pictures[0]), size); },
        pack(read(first, count)));
    for (size_t i = 0; i < encoder_.size(); ++i) {
      x = run(
          std::string(kEncoder) + ".blocks." + std::to_string(i),
          [this, i](Tensors&& tokens) { return through(encoder_[i], std::move(tokens[0]), {}, {}); },
          pack(std::move(x)));
    }
    const auto last = [this](Tensors&& tokens) {
      at::Tensor of_patches = tokens[0].slice(1, options_.special_tokens());
      return layer_norm(of_patches, encoder_norm_, encoder_.front().eps);
    };
    x = run(std::string(kEncoder) + ".norm", last, pack(std::move(x)));
    x = with_special_tokens(std::move(x), first, size.frames);
    first += count;
    return pack(std::move(x));
  };
  // Frames are rows without numbers: they are read where they are encoded.
  const at::Tensor frames = at::empty({all, 0}, camera_tokens_.options().requires_grad(false));
  return std::move(seam.rows(kEncoder, of_some, pack(frames), {.dim = 0, .each = patches}).front());
}

// The first frame's tokens differ from those of the others: (n, P, C) -> (n, R + P, C).
at::Tensor Vggt::with_special_tokens(at::Tensor x, int64_t first, int64_t frames_of_scene) const {
  Tensors cameras, registers;
  for (int64_t at = first, end = first + x.size(0), count = 0; at < end; at += count) {
    const int64_t place = at % frames_of_scene, other = place == 0 ? 0 : 1;
    count = place == 0 ? 1 : std::min(end - at, frames_of_scene - place);
    cameras.push_back(camera_tokens_.select(1, other).expand({count, -1, -1}));
    registers.push_back(frame_registers_.select(1, other).expand({count, -1, -1}));
  }
  if (cameras.size() == 1) return at::cat({cameras[0], registers[0], x}, 1);
  return at::cat({at::cat(cameras), at::cat(registers), x}, 1);
}

at::Tensor Vggt::through_pair(bool global, int64_t pair, at::Tensor x, const Tensors& places) const {
  const auto fn = [this, global, pair](Tensors&& in) -> at::Tensor {
    const VggtBlock& block = (global ? global_blocks_ : frame_blocks_)[static_cast<size_t>(pair)];
    const at::Tensor cosine = in[1], sine = in[2];
    if (global) {
      const bool divides = seam.divides_tokens && !at::GradMode::is_enabled();
      return (this->*(divides ? &Vggt::through_by_tokens : &Vggt::through))(block, std::move(in[0]), cosine,
                                                                            sine);
    }
    const RowsOf frames{.dim = 0, .each = in[0].size(1)};
    const auto some = [&](Tensors&& rows) { return pack(through(block, std::move(rows[0]), cosine, sine)); };
    return std::move(seam.rows("frames", some, pack(std::move(in[0])), frames).front());
  };
  Tensors inputs = pack(std::move(x));
  inputs.insert(inputs.end(), places.begin(), places.end());
  return run(pair_path(global, pair), fn, std::move(inputs));
}

VggtTaps Vggt::aggregate(at::Tensor tokens, const VggtSize& size) const {
  at::Tensor x = std::move(tokens);
  const int64_t special = options_.special_tokens(), head = *options_.hidden / *options_.heads;
  const Tensors of_frame = rotation(size, special, head, 1, x),
                of_all = rotation(size, special, head, size.frames, x);
  const bool keeps_all = !at::GradMode::is_enabled() && seam.taps == Taps::all;
  VggtTaps taps;
  taps.rows.resize(dense_.size());
  const auto reads = [&](int64_t pair) {
    const auto& read = *options_.taps;
    return pair + 1 == *options_.depth ||
           (!dense_.empty() && std::find(read.begin(), read.end(), pair) != read.end());
  };
  for (int64_t pair = 0; pair < *options_.depth; ++pair) {
    const bool waits = keeps_all || reads(pair);
    at::Tensor frames = through_pair(false, pair, std::move(x), of_frame);
    at::Tensor all = frames.unflatten(0, {size.scenes, size.frames}).flatten(1, 2);
    if (!waits) frames.reset();
    x = through_pair(true, pair, std::move(all), of_all);
    x = x.unflatten(1, {size.frames, -1}).flatten(0, 1);
    if (waits) tap(taps, pair, std::move(frames), x, size);
  }
  return taps;
}

// Of what the two blocks of a pair give, (B·S, R + P, C) each.
void Vggt::tap(VggtTaps& taps, int64_t pair, at::Tensor frames, at::Tensor all, const VggtSize& size) const {
  if (camera_ && pair + 1 == *options_.depth) {
    at::Tensor both = at::cat({frames.select(1, 0), all.select(1, 0)}, 1);
    taps.camera = both.unflatten(0, {size.scenes, size.frames});
  }
  if (!at::GradMode::is_enabled() && seam.taps != Taps::projected) {
    taps.entries.push_back(at::cat({frames, all}, 2));
    return;
  }
  const auto& read = *options_.taps;
  const auto number = static_cast<size_t>(std::find(read.begin(), read.end(), pair) - read.begin());
  for (size_t i = 0; i < dense_.size(); ++i) {
    const auto fn = [this, i, number](Tensors&& in) -> at::Tensor {
      const auto some = [&](Tensors&& rows) {
        const int64_t special = options_.special_tokens();
        at::Tensor both = at::cat({rows[0].slice(1, special), rows[1].slice(1, special)}, 2);
        rows.clear();
        return pack(projected(dense_[i], number, std::move(both)));
      };
      const RowsOf rows{.dim = 0, .each = in[0].size(1)};
      return std::move(seam.rows("taps", some, std::move(in), rows).front());
    };
    taps.rows[i].at(number) = run(project_path(dense_[i].name, pair), fn, pack(frames, all));
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

Tensors Vggt::rounds(at::Tensor tokens) const {
  tokens = tokens.to(camera_->token_norm.weight.scalar_type());
  tokens = layer_norm(tokens, camera_->token_norm, kVggtEps);
  at::Tensor pose = camera_->empty_pose.expand({tokens.size(0), tokens.size(1), -1});
  Tensors rounds;
  for (int round = 0; round < kRounds; ++round) {
    // A round learns to correct the one before, which does not learn from it.
    at::Tensor more = correction(tokens, round == 0 ? pose : pose.detach());
    pose = round == 0 ? more : pose + more;
    rounds.push_back(at::cat({pose.slice(2, 0, 7), at::relu(pose.slice(2, 7))}, 2));
  }
  return rounds;
}

}  // namespace dtk::models
