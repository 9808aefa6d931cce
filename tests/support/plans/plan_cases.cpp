#include "support/plans/plan_cases.h"

#include <algorithm>
#include <initializer_list>

#include "toolkit/core/random_streams.h"
#include "toolkit/diffusion/diffusion_names.h"

namespace dtk::bench {
namespace {

using Text = std::string;

/// Draws for one case.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t index) : key_(draw64(seed, index)) {}

 protected:
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(draw(choices.size())));
  }
  Text one_of(std::initializer_list<const char*> choices) { return one_of<const char*>(choices); }
  uint64_t draw(uint64_t choices) { return draw64(key_, drawn_++) % choices; }
  int64_t between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(draw(static_cast<uint64_t>(max - min + 1)));
  }
  bool chance(uint64_t one_in) { return draw(one_in) == 0; }

  void set(const char* name, const Text& value) { settings_.push_back(Text(name) + "=" + value); }
  void set(const char* name, const char* value) { set(name, Text(value)); }
  void set(const char* name, int64_t value) { set(name, std::to_string(value)); }
  void set(const char* name, bool value) { set(name, Text(value ? "true" : "false")); }

  std::vector<Text> settings_;

 private:
  const uint64_t key_;
  uint64_t drawn_ = 0;
};

class Case : public Draws {
 public:
  using Draws::Draws;

  std::vector<Text> settings() {
    model();
    data();
    diffusion();
    training();
    sampling();
    precision();
    attention_and_ema();
    checkpoint();
    return std::move(settings_);
  }

 private:
  void model() {
    const auto width = one_of<int64_t>({8, 12, 16, 32, 36, 64, 72});
    const int64_t heads = between(1, width > 32 ? 3 : 5);
    const auto patch = one_of<int64_t>({1, 2, 4});
    depth_ = between(1, 4);
    channels_ = one_of<int64_t>({1, 3, 4});
    classes_ = one_of<int64_t>({2, 7, 100});
    has_null_ = !chance(4);
    set("model.depth", depth_);
    set("model.hidden", width * heads);
    set("model.heads", heads);
    set("model.patch", patch);
    set("model.image_size", patch * between(1, 7));
    set("model.channels", channels_);
    set("model.classes", classes_);
    set("model.class_dropout", has_null_ ? "0.1" : "0.0");
    set("model.mlp_ratio", one_of({"4.0", "2.0", "1.5"}));
    set("model.mlp_dropout", one_of({"0.0", "0.1", "0.5"}));
  }

  void data() {
    const int64_t accumulate = between(1, 3);
    const int64_t batch = accumulate * between(1, 6);
    validation_ = chance(2) ? between(1, 9) : 0;
    set("data.kind", "synthetic");
    set("data.batch", batch);
    set("train.accumulate", accumulate);
    set("data.prefetch", between(1, 4));
    set("data.drop_last", chance(2));
    set("data.samples", validation_ + batch * between(1, 6) + between(0, batch - 1));
    if (validation_ > 0) set("data.validation", validation_);
  }

  void diffusion() {
    objective_ = one_of({Prediction::velocity, Prediction::epsilon, Prediction::v, Prediction::x0});
    set("diffusion.objective", policies::text_of(objective_));
    if (!is_gaussian(objective_)) return set("diffusion.time", one_of({"uniform", "logit_normal"}));
    set("diffusion.steps", one_of<int64_t>({100, 1000}));
    set("diffusion.betas", one_of({"linear", "cosine"}));
    set("model.learn_sigma", chance(2));
  }

  void training() {
    set("train.threads", int64_t{chance(5) ? 2 : 1});
    set("train.steps", int64_t{50});
    set("train.out", "runs/plan-case");
    set("train.checkpoint_every", int64_t{chance(2) ? 10 : 0});
    if (chance(2)) set("train.keep_checkpoints", between(1, 3));
    if (validation_ > 0) set("train.validate_every", int64_t{chance(2) ? 10 : 0});
    set("optimizer.clip", one_of({"0.0", "1.0"}));
    set("optimizer.weight_decay", one_of({"0.0", "0.1"}));
    set("log.tensorboard", chance(2));
    set("log.report", chance(2));
  }

  void sampling() {
    per_class_ = between(0, 3);
    set("sample.per_class", per_class_);
    if (per_class_ > 0) {
      set("train.sample_every", int64_t{chance(2) ? 10 : 0});
      set("sample.classes", "0-" + std::to_string(std::min(classes_, between(1, 3)) - 1));
    }
    const auto& samplers = samplers_for(objective_);
    const SamplerKind sampler = samplers[draw(samplers.size())];
    set("sample.sampler", policies::text_of(sampler));
    if (has_diffusion_steps(sampler) && chance(4)) {
      set("sample.respacing", one_of({"\"2,3\"", "\"5\"", "\"ddim5\""}));
    } else {
      set("sample.steps", between(2, 6));
    }
    if (sampler == SamplerKind::ddim) set("sample.eta", one_of({"0.0", "0.5"}));
    if (has_diffusion_steps(sampler)) set("sample.clip_x0", chance(2));
    const bool guided = has_null_ && !chance(3);
    set("sample.guidance", guided ? "2.5" : "1.0");
    if (guided) set("sample.cfg_channels", between(0, channels_));
  }

  void precision() {
    switch (draw(4)) {
      case 0:
        return set("policies.precision.enabled", false);
      case 1:
        return set("policies.precision.cpu", "fp32");
      case 2:
        set("policies.precision.cpu", "bf16");
        break;
      default:
        set("policies.precision.enabled", true);
    }
    set("policies.precision.fp32", one_of({"[\"final_layer\"]", "[]", "[\"blocks.0\",\"final_layer\"]",
                                           "[\"t_embedder\",\"x_embedder\"]"}));
  }

  void attention_and_ema() {
    if (chance(3)) set("policies.attention.enabled", false);
    const bool ema = !chance(4);
    if (ema) {
      set("policies.ema.every", between(1, 3));
      set("policies.ema.device", one_of({"cpu", "same"}));
      set("policies.ema.warmup", chance(2));
      const bool of_average = chance(2);
      if (per_class_ > 0) set("sample.ema", of_average);
      if (validation_ > 0) set("train.validate_ema", chance(2));
    } else {
      set("policies.ema.enabled", false);
    }
  }

  void checkpoint() {
    if (chance(3)) return set("policies.checkpoint.enabled", false);
    const Text targets =
        one_of({"[\"blocks.*\"]", "[\"blocks.*\",\"final_layer\"]", "[\"blocks.0\"]", "[\"x_embedder\"]"});
    set("policies.checkpoint.targets", targets);
    const int64_t matches = targets.find('*') == Text::npos ? 1 : depth_ + (targets.find(',') != Text::npos);
    if (matches > 1 && chance(3)) {
      set("policies.checkpoint.every", between(2, matches));
    } else if (matches > 1 && chance(3)) {
      set("policies.checkpoint.segment", between(2, matches));
    }
    keep(/*in_blocks=*/targets.find("blocks") != Text::npos);
  }

  // Results have names in blocks only.
  void keep(bool in_blocks) {
    const Text word =
        in_blocks && chance(3) ? "results" : one_of({"block", "block", "all", "offload", "offload"});
    if (word == "results") {
      if (chance(3)) {
        min_bytes();
        return set("policies.checkpoint.keep",
                   one_of({"[\"offload\"]", "[\"fc2_out\",\"offload\"]", "[\"offload\",\"aten::addmm\"]"}));
      }
      const Text results = one_of({"[\"attn_out\"]", "[\"fc2_out\"]", "[\"proj_out\",\"fc2_out\"]",
                                   "[\"aten::addmm\"]", "[\"aten::gelu\",\"aten::native_layer_norm\"]",
                                   "[\"attn_out\",\"aten::gelu\"]", "elementwise", "gates"});
      // With fused operators neither of the two runs.
      if (results.find("aten::gelu") != Text::npos) set("policies.fusion.enabled", false);
      return set("policies.checkpoint.keep", results);
    }
    set("policies.checkpoint.keep", word);
    if (word == "offload") min_bytes();
  }

  void min_bytes() {
    set("policies.checkpoint.offload_min_bytes", one_of<int64_t>({0, 1, 512, 20'000, 1 << 20}));
  }

  int64_t depth_ = 0, channels_ = 0, classes_ = 0, validation_ = 0, per_class_ = 0;
  bool has_null_ = true;
  Prediction objective_ = Prediction::velocity;
};

class LlavaCase : public Draws {
 public:
  using Draws::Draws;

  std::vector<Text> settings(int64_t vocabulary) {
    set("train.model", "llava");
    sizes(vocabulary);
    parts();
    training();
    policies();
    return std::move(settings_);
  }

 private:
  void sizes(int64_t vocabulary) {
    const int64_t heads = between(1, 3), patch = one_of<int64_t>({4, 7, 14}), side = between(1, 3);
    set("llava.vision.heads", heads);
    set("llava.vision.hidden", heads * one_of<int64_t>({4, 8, 12}));
    set("llava.vision.mlp", between(4, 40));
    set("llava.vision.depth", between(2, 4));
    set("llava.vision.patch", patch);
    set("llava.vision.image", patch * side);
    set("llava.tap", one_of({"-1", "-2"}));
    set("llava.projector", one_of({"mlp2x_gelu", "mlp1x_gelu", "linear", "mlp3x_gelu"}));
    const int64_t text_heads = between(1, 3);
    set("llava.text.heads", text_heads);
    set("llava.text.hidden", text_heads * one_of<int64_t>({4, 8, 16}));
    set("llava.text.mlp", between(8, 70));
    set("llava.text.depth", between(1, 4));
    set("llava.text.vocabulary", vocabulary);
    set("llava.loss_chunk", one_of<int64_t>({1, 7, 64}));
    set("llava.data.max_length", side * side + between(24, 80));
    if (chance(3)) set("llava.data.pad", "max");
  }

  void parts() {
    const Text parts = one_of(
        {R"(["projector"])", R"(["projector", "text"])", R"(["vision", "projector", "text"])",
         R"(["projector", "lora"])", R"(["projector", "lora"])", R"(["vision", "projector"])", R"(["lora"])",
         R"(["text"])", R"(["lora", "head"])", R"(["lora", "norm"])", R"(["head"])", R"(["norm"])"});
    set("train.parts", parts);
    const bool packs = parts.find("text") == Text::npos;
    trains_layers_ = !packs || parts.find("lora") != Text::npos;
    has_graph_ = trains_layers_ || parts.find("projector") != Text::npos;
    const Text base = packs ? one_of({"fp32", "bf16", "int8", "nf4", "nf4"}) : one_of({"fp32", "bf16"});
    set("llava.base", base);
    if (base == "nf4") set("llava.double_quant", chance(2));
    if (parts.find("lora") == Text::npos) return;
    set("llava.lora.r", between(1, 3));
    set("llava.lora.dropout", one_of({"0.0", "0.1", "0.5"}));
    if (chance(3)) set("llava.lora.targets", R"(["q_proj", "down_proj"])");
  }

  void training() {
    const int64_t accumulate = between(1, 3), micro = between(1, 3);
    set("data.batch", accumulate * micro);
    set("train.accumulate", accumulate);
    if (micro > 1 && chance(3)) set("memory.split", micro);
    set("data.prefetch", between(1, 3));
    if (chance(2)) set("data.validation", between(1, 4));
    set("train.threads", int64_t{chance(5) ? 2 : 1});
    set("train.steps", int64_t{20});
    set("train.out", "runs/plan-case");
    set("train.checkpoint_every", int64_t{chance(2) ? 10 : 0});
    set("optimizer.clip", one_of({"0.0", "1.0"}));
    if (trains_layers_ && chance(4)) set("optimizer.rates", R"(["model.layers: 1e-5"])");
  }

  void policies() {
    switch (draw(3)) {
      case 0:
        set("policies.precision.enabled", false);
        break;
      case 1:
        set("policies.precision.cpu", "fp32");
        break;
      default:
        set("policies.precision.cpu", "bf16");
    }
    if (chance(3)) set("policies.attention.enabled", false);
    if (chance(4)) {
      set("policies.ema.enabled", true);
      set("policies.ema.device", "same");
    }
    if (chance(3) || !has_graph_) return set("policies.checkpoint.enabled", false);
    if (chance(3)) return set("policies.checkpoint.keep", R"(["attn_out"])");
    if (!chance(3)) return set("policies.checkpoint.keep", "block");
    set("policies.checkpoint.keep", "offload");
    set("policies.checkpoint.offload_min_bytes", one_of<int64_t>({0, 512}));
  }

  bool trains_layers_ = false;
  bool has_graph_ = false;  // in the decoder's layers
};

class VggtCase : public Draws {
 public:
  using Draws::Draws;

  std::vector<Text> settings(int64_t& frames) {
    frames = chance(2) ? between(1, 9) : 0;
    set("train.model", "vggt");
    sizes(/*points=*/frames > 0 && chance(2));
    precision();
    if (chance(4)) set("policies.attention.enabled", false);
    if (frames > 0) {
      inference();
    } else {
      training();
    }
    return std::move(settings_);
  }

 private:
  void sizes(bool points) {
    const int64_t heads = between(1, 3), patch = one_of<int64_t>({4, 7}), depth = between(4, 6);
    set("vggt.heads", heads);
    set("vggt.hidden", heads * one_of<int64_t>({4, 8, 16}));
    set("vggt.patch", patch);
    set("vggt.image", patch * between(1, 4));
    set("vggt.encoder", between(1, 2));
    set("vggt.depth", depth);
    set("vggt.registers", between(0, 3));
    set("vggt.trunk", between(1, 2));
    set("vggt.features", 8 * between(1, 2));
    set("vggt.widths", one_of({"[4, 8, 12, 12]", "[8, 8, 8, 8]", "[16, 12, 8, 4]"}));
    set("vggt.taps", depth == 4 ? Text("[0, 1, 2, 3]") : "[0, 2, 3, " + std::to_string(depth - 1) + "]");
    set("vggt.data.height", patch * between(1, 4));
    set("vggt.data.width", patch * between(1, 4));
    if (points) set("vggt.points", true);
    switch (draw(4)) {
      case 0:
        return set("vggt.camera", false);
      case 1:
        return set("vggt.depths", false);
      default:
        return;
    }
  }

  void precision() {
    if (chance(2)) return set("policies.precision.enabled", false);
    set("policies.precision.cpu", one_of({"fp32", "bf16"}));
  }

  void inference() {
    if (chance(6)) return set("policies.inference.enabled", false);
    for (const char* const key : {"policies.inference.frame_chunk", "policies.inference.token_chunk",
                                  "policies.inference.query_chunk", "policies.inference.head_chunk"}) {
      if (chance(2)) set(key, one_of<int64_t>({0, 1, 2, 3, 17}));
    }
    set("policies.inference.taps", one_of({"projected", "tapped", "all"}));
    const bool narrow = !chance(3);
    if (!narrow) set("policies.inference.narrow_weights", false);
    if (chance(5)) set("policies.inference.gradients", true);
    if (narrow && chance(3)) set("vggt.infer.narrow_heads", true);
  }

  void training() {
    const int64_t accumulate = between(1, 2), micro = between(1, 2);
    set("train.threads", int64_t{chance(5) ? 2 : 1});
    set("vggt.data.frames", between(1, 3));
    set("data.batch", accumulate * micro);
    set("train.accumulate", accumulate);
    set("data.prefetch", between(1, 3));
    if (chance(2)) set("data.validation", between(1, 3));
    set("train.steps", int64_t{20});
    set("train.out", "runs/plan-case");
    set("train.checkpoint_every", int64_t{chance(2) ? 10 : 0});
    set("optimizer.clip", one_of({"0.0", "1.0"}));
    if (chance(3)) return set("policies.checkpoint.enabled", false);
    set("policies.checkpoint.keep", one_of({"block", "offload"}));
  }
};

}  // namespace

std::vector<std::string> vggt_case(uint64_t seed, uint64_t index, int64_t& frames) {
  return VggtCase(seed, index).settings(frames);
}

std::vector<std::string> plan_case(uint64_t seed, uint64_t index) {
  return Case(seed, index).settings();
}

std::vector<std::string> llava_case(uint64_t seed, uint64_t index, int64_t vocabulary) {
  return LlavaCase(seed, index).settings(vocabulary);
}

}  // namespace dtk::bench
