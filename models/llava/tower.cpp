// The CLIP tower up to the layer whose output is taken, and the projector.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <dtk/models/llava.h>

#include <utility>

#include "llava/parts.h"

namespace dtk::models {
namespace {

constexpr double kTowerEps = 1e-5;

at::Tensor layer_norm(const at::Tensor& x, const Linear& norm) {
  return at::layer_norm(x, {x.size(-1)}, norm.weight, norm.bias, kTowerEps);
}

// x·σ(1.702x), in the place of GELU.
at::Tensor quick_gelu(const at::Tensor& x) {
  at::Tensor gate = x * 1.702;
  gate = gate.sigmoid();
  return x * gate;
}

}  // namespace

at::Tensor Llava::encode(at::Tensor x) const {
  if (x.size(0) == 0 && !patches_.requires_grad()) {
    // No picture is looked at, but the projector has its gradient: zeros. So has a tower that is trained,
    // below.
    x = at::zeros({0, options_.image_tokens(), *options_.vision.hidden},
                  patches_.options().requires_grad(false));
  } else {
    x = run(
        paths_[first_tower_ - 1], [this](Tensors&& in) { return pack(embed_pictures(std::move(in[0]))); },
        pack(std::move(x)));
    for (size_t i = 0; i < tower_.size(); ++i) {
      const auto fn = [this, layer = &tower_[i]](Tensors&& in) {
        return pack(tower_layer(*layer, std::move(in[0])));
      };
      x = run(paths_[first_tower_ + i], fn, pack(std::move(x)));
    }
    x = x.slice(1, 1);  // without the class token
  }
  return run(
      "model.mm_projector", [this](Tensors&& in) { return pack(project(std::move(in[0]))); },
      pack(std::move(x)));
}

// (M, 3, S, S) -> (M, 1 + P, c)
at::Tensor Llava::embed_pictures(at::Tensor x) const {
  const int64_t patch = *options_.vision.patch;
  x = x.to(patches_.scalar_type());
  x = at::conv2d(x, patches_, {}, {patch, patch});
  x = x.flatten(2).transpose(1, 2);
  at::Tensor first = class_embedding_.to(x.scalar_type());
  first = first.expand({x.size(0), 1, x.size(2)});
  x = at::cat({first, x}, 1);
  x = x + positions_;
  return layer_norm(x, pre_norm_);
}

at::Tensor Llava::tower_layer(const LlavaTowerLayer& layer, at::Tensor x) const {
  const int64_t heads = *options_.vision.heads;
  at::Tensor h = layer_norm(x, layer.norm1);
  at::Tensor q = heads_of(layer.q(h), heads), k = heads_of(layer.k(h), heads),
             v = heads_of(layer.v(h), heads);
  h = seam.attention(std::move(q), std::move(k), std::move(v), {});
  h = seam.keep("attn_out", std::move(h));
  h = h.transpose(1, 2).flatten(2);
  h = layer.out(h);
  x = x + h;
  h.reset();
  h = layer_norm(x, layer.norm2);
  h = layer.fc1(h);
  h = quick_gelu(h);
  h = layer.fc2(h);
  return x + h;
}

at::Tensor Llava::project(at::Tensor x) const {
  for (size_t i = 0; i < projector_.size(); ++i) {
    if (i > 0) x = at::gelu(x);
    // A frozen tower may be stored in other bits; under autocast both become its own.
    if (!at::autocast::is_autocast_enabled(x.device().type())) x = x.to(projector_[i].weight.scalar_type());
    x = projector_[i](x);
  }
  return x;
}

}  // namespace dtk::models
