#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/fusable.h>
#include <dtk/models/llava.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "seam/drawn_layers.h"

// One operator per statement, and dead tensors reset or moved, as in dit.cpp.

namespace dtk::models {
namespace {

constexpr char kTower[] = "model.vision_tower.vision_tower.vision_model";

}  // namespace

// ---- parameters ----

// Registers parameters in order, and draws their initial values on the device.
struct Llava::Builder final : DrawnLayers {
  Builder(Llava& of, c10::Device device, std::optional<at::Generator> generator, const ParameterMade& each)
      : DrawnLayers(std::move(generator)),
        model(of),
        fp32(at::TensorOptions().dtype(at::kFloat).device(device)),
        made(each) {}

  Llava& model;
  at::TensorOptions fp32;
  const ParameterMade& made;
  bool trained = false;  // what is added now
  bool is_used = true;   // likewise, by the loss

  at::Tensor add(const std::string& name, const Fill& fill, at::IntArrayRef shape) override {
    const bool half = !trained && model.options_.base != LlavaBase::fp32;
    at::Tensor value = at::empty(shape, half ? fp32.dtype(at::kBFloat16) : fp32);
    fill(value);
    value.set_requires_grad(trained);
    model.parameters_.emplace_back(name, value);
    if (trained && !is_used) model.unused_.push_back(name);
    if (made) made(name, value);
    return value;
  }

  void tower() {
    const LlavaVision& sizes = model.options_.vision;
    const int64_t width = *sizes.hidden, patch = *sizes.patch, inner = *sizes.mlp;
    const std::string root = kTower, embeddings = root + ".embeddings";
    const double deviation = 1 / std::sqrt(static_cast<double>(width));
    model.class_embedding_ = normal(embeddings + ".class_embedding", {width}, deviation);
    model.patches_ = normal(embeddings + ".patch_embedding.weight", {width, 3, patch, patch});
    model.positions_ =
        normal(embeddings + ".position_embedding.weight", {1 + model.options_.image_tokens(), width});
    model.pre_norm_ = norm(root + ".pre_layrnorm", width);
    model.paths_.push_back(embeddings);
    model.first_tower_ = model.paths_.size();
    for (int64_t i = 0; i < *sizes.depth; ++i) {
      const std::string path = root + ".encoder.layers." + std::to_string(i);
      is_used = i < model.options_.tower_layers();
      LlavaTowerLayer layer;
      layer.norm1 = norm(path + ".layer_norm1", width);
      layer.q = linear(path + ".self_attn.q_proj", width, width);
      layer.k = linear(path + ".self_attn.k_proj", width, width);
      layer.v = linear(path + ".self_attn.v_proj", width, width);
      layer.out = linear(path + ".self_attn.out_proj", width, width);
      layer.norm2 = norm(path + ".layer_norm2", width);
      layer.fc1 = linear(path + ".mlp.fc1", width, inner);
      layer.fc2 = linear(path + ".mlp.fc2", inner, width);
      if (!is_used) continue;
      model.tower_.push_back(std::move(layer));
      model.paths_.push_back(path);
    }
    is_used = false;
    norm(root + ".post_layernorm", width);
    is_used = true;
  }

  void projector() {
    const std::string path = "model.mm_projector";
    const int64_t depth = model.options_.projector_depth(), hidden = *model.options_.text.hidden;
    const bool is_mlp = model.options_.is_projector_mlp();
    for (int64_t i = 0; i < depth; ++i) {
      // In a torch.nn.Sequential with a GELU between two.
      const std::string name = is_mlp ? path + "." + std::to_string(2 * i) : path;
      model.projector_.push_back(
          uniform_linear(name, i == 0 ? *model.options_.vision.hidden : hidden, hidden));
    }
    model.paths_.push_back(path);
  }

  // Drawn as codes, all of them alike often: nothing is computed with a weight in full.
  PackedWeight packed(Packing packing, int64_t out, int64_t in) {
    PackedWeight weight = empty_packed(packing, out, in, model.options_.double_quant, fp32.device());
    const bool is_nf4 = packing == Packing::nf4;
    weight.codes.random_(is_nf4 ? 0 : -127, is_nf4 ? 256 : 128, generator());
    // Of 16 values of NF4 the deviation is 0.515, of 255 alike in [-1, 1] 0.58.
    const double magnitude = kDrawnDeviation / (is_nf4 ? 0.515 : 0.58);
    if (!weight.nested_absmax.defined()) {
      weight.absmax.fill_(magnitude);
      return weight;
    }
    const std::vector<float>& map = nested_values();
    weight.absmax.fill_(static_cast<int64_t>(std::find(map.begin(), map.end(), 0.0F) - map.begin()));
    weight.nested_absmax.fill_(1.0);
    weight.nested_offset.fill_(magnitude);
    return weight;
  }

  // A is drawn as peft draws it, uniform in ±1/√in, and B is 0, so that an adapter begins without effect.
  LlavaProjection projection(const std::string& of, const std::string& name, int64_t in, int64_t out) {
    LlavaProjection matrix;
    const LlavaBase base = model.options_.base;
    if (!trained && is_packed(base)) {
      matrix.packed = packed(base == LlavaBase::nf4 ? Packing::nf4 : Packing::int8, out, in);
      model.packed_.emplace_back(of + name + ".weight", *matrix.packed);
    } else {
      matrix.weight = normal(of + name + ".weight", {out, in});
    }
    const LlavaLora& lora = model.options_.lora;
    const auto& targets = lora.targets;
    if (lora.r == 0 || std::find(targets.begin(), targets.end(), name) == targets.end()) return matrix;
    const bool base_trained = std::exchange(trained, model.options_.trained.lora);
    matrix.down = uniform(of + name + ".lora_A.weight", {lora.r, in}, in);
    matrix.up = constant(of + name + ".lora_B.weight", {out, lora.r}, 0.0);
    trained = base_trained;
    return matrix;
  }

  void decoder() {
    const LlavaText& sizes = model.options_.text;
    const int64_t hidden = *sizes.hidden, inner = *sizes.mlp;
    model.embedding_ = normal("model.embed_tokens.weight", {*sizes.vocabulary, hidden});
    model.paths_.emplace_back("model.embed_tokens");
    model.first_text_ = model.paths_.size();
    for (int64_t i = 0; i < *sizes.depth; ++i) {
      const std::string path = "model.layers." + std::to_string(i);
      LlavaTextLayer layer;
      layer.norm1 = constant(path + ".input_layernorm.weight", {hidden}, 1.0);
      layer.q = projection(path + ".self_attn.", "q_proj", hidden, hidden);
      layer.k = projection(path + ".self_attn.", "k_proj", hidden, hidden);
      layer.v = projection(path + ".self_attn.", "v_proj", hidden, hidden);
      layer.o = projection(path + ".self_attn.", "o_proj", hidden, hidden);
      layer.norm2 = constant(path + ".post_attention_layernorm.weight", {hidden}, 1.0);
      layer.gate = projection(path + ".mlp.", "gate_proj", hidden, inner);
      layer.up = projection(path + ".mlp.", "up_proj", hidden, inner);
      layer.down = projection(path + ".mlp.", "down_proj", inner, hidden);
      model.layers_.push_back(std::move(layer));
      model.paths_.push_back(path);
    }
    trained = model.options_.trained.text || model.options_.trained.norm;
    model.norm_ = constant("model.norm.weight", {hidden}, 1.0);
    model.paths_.emplace_back("model.norm");
    trained = model.options_.trained.text || model.options_.trained.head;
    model.head_ = normal("lm_head.weight", {*sizes.vocabulary, hidden});
    model.paths_.emplace_back("lm_head");
  }
};

Llava::Llava(const LlavaOptions& options, c10::Device device, std::optional<at::Generator> generator,
             const ParameterMade& made)
    : options_(resolved(options)) {
  const at::NoGradGuard no_grad;
  Builder build(*this, device, std::move(generator), made);
  build.trained = options_.trained.vision;
  build.tower();
  build.trained = options_.trained.projector;
  build.projector();
  build.trained = options_.trained.text;
  build.decoder();
}

// ---- forward ----

at::Tensor Llava::run(std::string_view path, const ModuleFn& fn, Tensors&& inputs) const {
  return std::move(seam.run(path, fn, std::move(inputs)).front());
}

// (N, T, h), with the features of pictures in their places.
at::Tensor Llava::embedded(LlavaBatch& batch) const {
  at::Tensor features = encode(std::move(batch.pictures));
  at::Tensor x = run(
      "model.embed_tokens", [this](Tensors&& in) { return pack(embed(std::move(in[0]))); },
      pack(std::move(batch.ids)));
  const int64_t samples = x.size(0), tokens = x.size(1), width = x.size(2);
  features = features.flatten(0, 1);
  if (batch.feature_rows.size(0) != features.size(0)) features = features.index_select(0, batch.feature_rows);
  features = features.to(x.scalar_type());
  x = x.flatten(0, 1);
  x = x.index_copy(0, batch.picture_rows, features);
  return x.view({samples, tokens, width});
}

// Through all layers, behind what the cache holds.
at::Tensor Llava::decoded(at::Tensor x, LlavaCache* cache, bool training) const {
  const int64_t tokens = x.size(1);
  const Tensors tables = rotation(cache != nullptr ? cache->filled : 0, tokens, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto fn = [this, i, cache, training](Tensors&& in) {
      at::Tensor rows = std::move(in[0]);
      in.erase(in.begin());
      return pack(text_layer(i, std::move(rows), in, cache, training));
    };
    Tensors inputs = pack(std::move(x));
    inputs.insert(inputs.end(), tables.begin(), tables.end());
    x = run(paths_[first_text_ + i], fn, std::move(inputs));
  }
  if (cache != nullptr) cache->filled += tokens;
  return x;
}

// Of the rows that carry a label, (L, h), normalised. Only they are: what predicts nothing needs no logits.
at::Tensor Llava::hidden(LlavaBatch& batch, bool training) const {
  at::Tensor x = embedded(batch);
  x = decoded(std::move(x), nullptr, training);
  x = x.flatten(0, 1);
  x = x.index_select(0, batch.label_rows);
  return run(
      "model.norm", [this](Tensors&& in) { return pack(normed(in[0])); }, pack(std::move(x)));
}

// A head, or a norm, that is trained in fp32 may stand beside others in 16 bits: where autocast does not
// choose for the product, the head does.
at::Tensor Llava::normed(const at::Tensor& x) const {
  const at::Tensor y = rms_norm(seam, x, norm_, options_.text.norm_eps);
  return at::autocast::is_autocast_enabled(x.device().type()) ? y : y.to(head_.scalar_type());
}

at::Tensor Llava::loss(LlavaBatch batch, bool training) const {
  at::Tensor x = hidden(batch, training);
  if (batch.labels.size(0) == 0) return x.to(at::kFloat).sum();
  const auto fn = [this](Tensors&& in) {
    return pack(chunked_cross_entropy(in[0], head_, in[1], options_.loss_chunk));
  };
  return run("lm_head", fn, pack(std::move(x), std::move(batch.labels)));
}

std::optional<at::Tensor> Llava::continued(LlavaBatch prompts, int64_t count,
                                           const std::function<bool(int64_t)>& go_on) const {
  const at::NoGradGuard no_grad;
  const int64_t samples = prompts.ids.size(0), prompt = prompts.ids.size(1);
  const int64_t heads = *options_.text.heads, width = *options_.text.hidden / heads;
  at::Tensor tokens = at::empty({samples, count}, prompts.ids.options());
  at::Tensor x;
  LlavaCache cache;
  for (int64_t i = 0; i < count; ++i) {
    if (go_on && !go_on(i)) return std::nullopt;
    if (i == 0) {
      x = embedded(prompts);
    } else {
      x = run(
          "model.embed_tokens", [this](Tensors&& in) { return pack(embed(std::move(in[0]))); },
          pack(tokens.narrow(1, i - 1, 1)));
    }
    if (cache.keys.empty()) {
      // What attention computes in: of a trained model that is autocast's, which a product tells.
      const at::Tensor of_kind = product(layers_.front().k, x.narrow(0, 0, 1).narrow(1, 0, 1), false);
      for (size_t layer = 0; layer < layers_.size(); ++layer) {
        cache.keys.push_back(at::empty({samples, heads, prompt + count, width}, of_kind.options()));
        cache.values.push_back(at::empty_like(cache.keys.back()));
      }
    }
    x = decoded(std::move(x), &cache, /*training=*/false);
    x = x.narrow(1, x.size(1) - 1, 1).flatten(0, 1);
    x = run(
        "model.norm", [this](Tensors&& in) { return pack(normed(in[0])); }, pack(std::move(x)));
    x = run(
        "lm_head", [this](Tensors&& in) { return pack(at::linear(in[0], head_)); }, pack(std::move(x)));
    tokens.select(1, i).copy_(x.argmax(1));
  }
  return tokens;
}

at::Tensor Llava::logits(LlavaBatch batch) const {
  at::Tensor x = hidden(batch, /*training=*/false);
  const auto fn = [this](Tensors&& in) { return pack(at::linear(in[0], head_)); };
  return run("lm_head", fn, pack(std::move(x)));
}

}  // namespace dtk::models
