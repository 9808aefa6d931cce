#include "network.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

namespace springs {
namespace {

at::Tensor normalized(const at::Tensor& x) {
  return at::layer_norm(x, {x.size(-1)});
}

}  // namespace

Network::Network(const Table& sizes, c10::Device device, std::optional<at::Generator> generator)
    : heads_(sizes.heads) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  const auto add = [&](const std::string& name, at::Tensor value) {
    value.requires_grad_(true);
    return parameters_.emplace_back(name, std::move(value)).second;
  };
  const auto drawn = [&](at::IntArrayRef shape) {
    return at::empty(shape, options).normal_(0, 1 / std::sqrt(static_cast<double>(shape.back())), generator);
  };
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    at::Tensor weight = add(name + ".weight", drawn({out, in}));
    return models::Linear{std::move(weight), add(name + ".bias", at::zeros({out}, options))};
  };
  const int64_t width = sizes.width;
  position_ = add("embed.position", drawn({sizes.steps, width}));
  start_ = linear("embed.start", 4, width);
  force_ = linear("embed.force", 1, width);
  paths_.push_back("embed");
  for (int64_t i = 0; i < sizes.depth; ++i) {
    const std::string path = "blocks." + std::to_string(i);
    blocks_.push_back({linear(path + ".qkv", width, 3 * width), linear(path + ".proj", width, width),
                       linear(path + ".in", width, 4 * width), linear(path + ".out", 4 * width, width)});
    paths_.push_back(path);
  }
  head_ = linear("head", width, 2);
  paths_.push_back("head");
}

at::Tensor Network::forward(at::Tensor start, at::Tensor forces) const {
  at::Tensor x = run(
      "embed",
      [this](models::Tensors&& in) { return models::pack(embed(std::move(in[0]), std::move(in[1]))); },
      models::pack(std::move(start), std::move(forces)));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto fn = [this, layer = &blocks_[i]](models::Tensors&& in) {
      return models::pack(block(*layer, std::move(in[0])));
    };
    x = run(paths_[1 + i], fn, models::pack(std::move(x)));
  }
  const auto head = [this](models::Tensors&& in) {
    at::Tensor tokens = normalized(std::move(in[0]));
    return models::pack(head_(tokens));
  };
  return run("head", head, models::pack(std::move(x)));
}

at::Tensor Network::run(const std::string& path, const models::ModuleFn& fn, models::Tensors&& inputs) const {
  return std::move(seam.run(path, fn, std::move(inputs)).front());
}

at::Tensor Network::embed(at::Tensor start, at::Tensor forces) const {
  start = start_(start.flatten(1));
  at::Tensor x = force_(forces.unsqueeze(2));
  x = x + position_;
  return x + start.unsqueeze(1);
}

at::Tensor Network::block(const Block& layer, at::Tensor x) const {
  at::Tensor h = normalized(x);
  h = attention(layer, std::move(h));
  x = x + h;
  h = normalized(x);
  h = layer.in(h);
  h = at::gelu(h, "tanh");
  h = layer.out(h);
  return x + h;
}

at::Tensor Network::attention(const Block& layer, at::Tensor x) const {
  const int64_t samples = x.size(0), steps = x.size(1), width = x.size(2);
  x = layer.qkv(x);
  x = x.reshape({samples, steps, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  models::Tensors parts = x.unbind(0);
  x.reset();
  x = seam.attention(std::move(parts[0]), std::move(parts[1]), std::move(parts[2]), {});
  parts.clear();
  x = seam.keep("attn_out", std::move(x));
  x = x.transpose(1, 2).reshape({samples, steps, width});
  return layer.proj(x);
}

}  // namespace springs
