#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/dit.h>
#include <dtk/models/fusable.h>

#include <cmath>
#include <stdexcept>

// One operator per statement, and dead tensors reset or moved: in C++ a temporary lives to the end of the
// full expression, so nested calls hold several activations at once wherever autograd does not.

namespace dtk::models {
namespace {

constexpr double kNormEps = 1e-6;
constexpr double kEmbeddingStd = 0.02;

// The six or two (N, D) chunks of a modulation of c (N, D); views of one buffer.
Tensors modulation(const Linear& linear, const at::Tensor& c, int64_t chunks) {
  at::Tensor h = at::silu(c);
  h = linear(h);
  return h.chunk(chunks, 1);
}

}  // namespace

at::Tensor position_table(int64_t hidden, int64_t grid) {
  const int64_t quarter = hidden / 4;
  const auto f64 = at::TensorOptions().dtype(at::kDouble);
  at::Tensor omega = at::arange(quarter, f64) / static_cast<double>(quarter);
  omega = at::pow(at::Scalar(10000.0), omega).reciprocal();           // (D/4)
  const at::Tensor angles = at::outer(at::arange(grid, f64), omega);  // (grid, D/4)
  const at::Tensor line = at::cat({angles.sin(), angles.cos()}, 1);   // (grid, D/2)
  const at::Tensor columns = line.unsqueeze(0).expand({grid, grid, 2 * quarter});
  const at::Tensor rows = line.unsqueeze(1).expand({grid, grid, 2 * quarter});
  const at::Tensor table = at::cat({columns, rows}, 2).reshape({1, grid * grid, hidden});
  return table.to(at::kFloat);
}

// ---- parameters ----

// Registers parameters in order and draws their initial values on the device.
struct Dit::Builder {
  Dit& dit;
  at::TensorOptions options;
  std::optional<at::Generator> generator;
  const ParameterMade& made;

  at::Tensor add(const std::string& name, at::Tensor value, bool trainable = true) {
    value.set_requires_grad(trainable);
    dit.parameters_.emplace_back(name, value);
    if (made) made(name, value);
    return value;
  }
  at::Tensor zeros(at::IntArrayRef shape) { return at::zeros(shape, options); }
  at::Tensor normal(at::IntArrayRef shape) {
    return at::empty(shape, options).normal_(0.0, kEmbeddingStd, generator);
  }
  // Xavier-uniform on the (rows, columns) view of the weight.
  at::Tensor xavier(at::IntArrayRef shape, int64_t rows, int64_t columns) {
    const double bound = std::sqrt(6.0 / static_cast<double>(rows + columns));
    return at::empty(shape, options).uniform_(-bound, bound, generator);
  }
  Linear linear(const std::string& name, at::Tensor weight) {
    const int64_t out = weight.size(0);
    at::Tensor w = add(name + ".weight", std::move(weight));
    return {w, add(name + ".bias", zeros({out}))};
  }
  Linear xavier_linear(const std::string& name, int64_t in, int64_t out) {
    return linear(name, xavier({out, in}, out, in));
  }
  Linear zero_linear(const std::string& name, int64_t in, int64_t out) {
    return linear(name, zeros({out, in}));
  }

  void block(const std::string& path, int64_t hidden, int64_t inner) {
    DitBlock block;
    block.qkv = xavier_linear(path + ".attn.qkv", hidden, 3 * hidden);
    block.proj = xavier_linear(path + ".attn.proj", hidden, hidden);
    block.fc1 = xavier_linear(path + ".mlp.fc1", hidden, inner);
    block.fc2 = xavier_linear(path + ".mlp.fc2", inner, hidden);
    block.modulation = zero_linear(path + ".adaLN_modulation.1", hidden, 6 * hidden);
    dit.blocks_.push_back(std::move(block));
  }
};

Dit::Dit(const DitOptions& options, c10::Device device, std::optional<at::Generator> generator,
         const ParameterMade& made)
    : options_(resolved(options)) {
  at::NoGradGuard no_grad;
  Builder build{*this, at::TensorOptions().dtype(at::kFloat).device(device), std::move(generator), made};
  const int64_t hidden = *options_.hidden;
  const int64_t patch = *options_.patch;
  const auto inner = static_cast<int64_t>(static_cast<double>(hidden) * options_.mlp_ratio);

  pos_embed_ = build.add("pos_embed", position_table(hidden, options_.image_size / patch).to(device), false);
  const int64_t pixels = options_.channels * patch * patch;
  patch_proj_ = build.linear("x_embedder.proj",
                             build.xavier({hidden, options_.channels, patch, patch}, hidden, pixels));
  time_in_ = build.linear("t_embedder.mlp.0", build.normal({hidden, kTimeFeatures}));
  time_out_ = build.linear("t_embedder.mlp.2", build.normal({hidden, hidden}));
  const int64_t rows = options_.classes + (options_.class_dropout > 0 ? 1 : 0);
  label_table_ = build.add("y_embedder.embedding_table.weight", build.normal({rows, hidden}));
  paths_ = {"x_embedder", "t_embedder", "y_embedder"};
  for (int64_t i = 0; i < *options_.depth; ++i) {
    paths_.push_back("blocks." + std::to_string(i));
    build.block(paths_.back(), hidden, inner);
  }
  paths_.push_back("final_layer");
  // adaLN-zero: with modulation and output at zero every block is the identity and the output is 0.
  final_linear_ = build.zero_linear("final_layer.linear", hidden, patch * patch * options_.out_channels());
  final_modulation_ = build.zero_linear("final_layer.adaLN_modulation.1", hidden, 2 * hidden);
}

// ---- forward ----

// What runs inside a module captures the model and plain values only: a policy may recompute it in the
// backward pass, when everything else of this call is gone.
at::Tensor Dit::forward(at::Tensor x, at::Tensor t, at::Tensor y, bool training,
                        const std::optional<at::Tensor>& drop) const {
  x = run(
      "x_embedder", [this](Tensors&& in) { return pack(embed_patches(std::move(in[0]))); },
      pack(std::move(x)));
  t = run(
      "t_embedder", [this](Tensors&& in) { return pack(embed_time(in[0])); }, pack(std::move(t)));
  Tensors label = pack(std::move(y));
  if (drop) label.push_back(*drop);
  const auto embed = [this, training](Tensors&& in) {
    const auto dropped = in.size() > 1 ? std::optional<at::Tensor>(in[1]) : std::nullopt;
    return pack(embed_label(std::move(in[0]), training, dropped));
  };
  y = run("y_embedder", embed, std::move(label));
  at::Tensor c = t + y;  // (N, D)
  t.reset();
  y.reset();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const DitBlock* layer = &blocks_[i];
    const auto fn = [this, layer, training](Tensors&& in) {
      at::Tensor tokens = std::move(in[0]);
      return pack(block(*layer, std::move(tokens), in[1], training));
    };
    x = run(paths_[3 + i], fn, pack(std::move(x), c));
  }
  const auto last = [this](Tensors&& in) {
    at::Tensor tokens = std::move(in[0]);
    return pack(final_layer(std::move(tokens), in[1]));
  };
  x = run("final_layer", last, pack(std::move(x), std::move(c)));
  return unpatchify(std::move(x));
}

at::Tensor Dit::run(std::string_view path, const ModuleFn& fn, Tensors&& inputs) const {
  return std::move(seam.run(path, fn, std::move(inputs)).front());
}

// (N, C, S, S) -> (N, T, D)
at::Tensor Dit::embed_patches(at::Tensor x) const {
  const int64_t patch = *options_.patch;
  x = at::conv2d(x, patch_proj_.weight, patch_proj_.bias, {patch, patch});
  x = x.flatten(2).transpose(1, 2);
  // In the first operand's layout: x has its channels apart, and each norm of each block would copy it.
  return pos_embed_ + x;
}

// (N) -> (N, D)
at::Tensor Dit::embed_time(const at::Tensor& t) const {
  at::Tensor h = time_features(t);
  h = time_in_(h);
  h = at::silu(h);
  return time_out_(h);
}

// (N) -> (N, D)
at::Tensor Dit::embed_label(at::Tensor y, bool training, const std::optional<at::Tensor>& drop) const {
  const bool may_drop = options_.class_dropout > 0;
  if (may_drop && (drop || training)) {
    at::Tensor dropped =
        drop ? *drop == 1 : at::rand(y.sizes(), y.options().dtype(at::kFloat)) < options_.class_dropout;
    y = at::where(dropped, at::Scalar(options_.classes), y);
  }
  return at::embedding(label_table_, y);
}

at::Tensor Dit::block(const DitBlock& layer, at::Tensor x, const at::Tensor& c, bool training) const {
  const Tensors m = modulation(layer.modulation, c, 6);  // shift, scale, gate of attention, then of the MLP
  at::Tensor h = norm_modulate_linear(seam, x, m[0], m[1], kNormEps, layer.qkv);
  h = attention(layer, std::move(h));
  const double dropout = training ? options_.mlp_dropout : 0;
  auto [sum, fed] = gated_add_mlp(seam, std::move(x), m[2], std::move(h), m[3], m[4], kNormEps, layer.fc1,
                                  layer.fc2, dropout);
  return gated_add(seam, sum, m[5], std::move(fed));
}

// qkv (N, T, 3D): q, k, v, heads contiguous within each.
at::Tensor Dit::attention(const DitBlock& layer, at::Tensor qkv) const {
  const int64_t n = qkv.size(0), tokens = qkv.size(1), hidden = qkv.size(2) / 3, heads = *options_.heads;
  qkv = seam.keep("qkv_out", std::move(qkv));
  qkv = qkv.reshape({n, tokens, 3, heads, hidden / heads}).permute({2, 0, 3, 1, 4});
  Tensors parts = qkv.unbind(0);
  qkv.reset();
  at::Tensor out = seam.attention(std::move(parts[0]), std::move(parts[1]), std::move(parts[2]), {});
  parts.clear();
  out = seam.keep("attn_out", std::move(out));
  out = out.transpose(1, 2).reshape({n, tokens, hidden});
  out = layer.proj(out);
  return seam.keep("proj_out", std::move(out));
}

// (N, T, D) -> (N, T, p·p·C_out)
at::Tensor Dit::final_layer(at::Tensor x, const at::Tensor& c) const {
  const Tensors m = modulation(final_modulation_, c, 2);
  return norm_modulate_linear(seam, x, m[0], m[1], kNormEps, final_linear_);
}

// (N, T, p·p·C_out), channel fastest -> (N, C_out, S, S)
at::Tensor Dit::unpatchify(at::Tensor x) const {
  const int64_t n = x.size(0), patch = *options_.patch, grid = options_.image_size / patch;
  const int64_t channels = options_.out_channels();
  x = x.reshape({n, grid, grid, patch, patch, channels}).permute({0, 5, 1, 3, 2, 4});
  return x.reshape({n, channels, grid * patch, grid * patch});
}

at::Tensor Dit::forward_guided(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y, double scale,
                               int64_t guided_channels) const {
  if (options_.class_dropout <= 0) {
    throw std::invalid_argument(
        "guidance needs the null label, which a model with class_dropout = 0 has not");
  }
  if (guided_channels < 0 || guided_channels > options_.channels) {
    throw std::invalid_argument("guided_channels = " + std::to_string(guided_channels) +
                                "; allowed: 0 (all) to " + std::to_string(options_.channels));
  }
  const int64_t guided = guided_channels == 0 ? options_.channels : guided_channels;
  const at::Tensor null = at::full_like(y, options_.classes);
  at::Tensor out = forward(at::cat({x, x}), at::cat({t, t}), at::cat({y, null}), /*training=*/false);
  const Tensors halves = out.chunk(2, 0);
  out.reset();
  at::Tensor with = halves[0].narrow(1, 0, guided);
  const at::Tensor without = halves[1].narrow(1, 0, guided);
  at::Tensor mixed = at::lerp(without, with, scale);
  if (guided == halves[0].size(1)) return mixed;
  return at::cat({mixed, halves[0].narrow(1, guided, halves[0].size(1) - guided)}, 1);
}

}  // namespace dtk::models
