#include <dtk/models/llava_options.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "seam/option_text.h"

namespace dtk::models {
namespace {

struct Preset {
  LlavaPreset name;
  LlavaVision vision;
  LlavaText text;
};

const std::array<Preset, 2>& presets() {
  static const LlavaVision clip{1024, 4096, 24, 16, 336, 14};
  static const std::array<Preset, 2> both{{{LlavaPreset::of_7b, clip, {4096, 11008, 32, 32, 32000}},
                                           {LlavaPreset::of_13b, clip, {5120, 13824, 40, 40, 32000}}}};
  return both;
}

const Preset* sizes_of(LlavaPreset name) {
  for (const Preset& one : presets()) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

template <class Table>
void fill(Table& table, const Table& from) {
  const auto set = [](auto& value, const auto& preset) {
    if (!value) value = preset;
  };
  set(table.hidden, from.hidden);
  set(table.mlp, from.mlp);
  set(table.depth, from.depth);
  set(table.heads, from.heads);
  if constexpr (requires { table.image; }) {
    set(table.image, from.image);
    set(table.patch, from.patch);
  } else {
    set(table.vocabulary, from.vocabulary);
  }
}

LlavaOptions with_sizes(LlavaOptions options) {
  if (const Preset* const preset = sizes_of(options.preset)) {
    fill(options.vision, preset->vision);
    fill(options.text, preset->text);
  }
  return options;
}

/// Collects broken rules; the later ones take what the earlier ones say for granted.
class Checker {
 public:
  explicit Checker(const LlavaOptions& options) : options_(with_sizes(options)) {}

  std::vector<LlavaProblem> run() {
    check_words();
    if (found_.empty()) check_sizes();
    if (found_.empty()) check_divisions();
    if (found_.empty()) check_adapters();
    return std::move(found_);
  }

 private:
  void add(const char* key, const std::string& message) { found_.push_back({key, message}); }

  void check_words() {
    if (options_.projector_depth() < 0) {
      add("projector", "llava.projector = \"" + options_.projector +
                           "\"; allowed: \"mlp2x_gelu\" with any digit from 1, \"linear\" and \"identity\"");
    }
  }

  template <class Table>
  void check_table(const std::string& table, const Table& values) {
    Table::fields(values, [&](const char* name, const auto& value, const auto&...) {
      if constexpr (requires { value.has_value(); }) {
        const std::string key = table + "." + name;
        if (!value) {
          missing_ += (missing_.empty() ? "llava." : ", llava.") + key;
        } else if (*value < 1) {
          add(key.c_str(), "llava." + key + " = " + std::to_string(*value) + " must be at least 1");
        }
      } else if (!(value > 0) || !std::isfinite(value)) {
        const std::string key = table + "." + name;
        add(key.c_str(), "llava." + key + " = " + text(value) + " must be in (0, inf)");
      }
    });
  }

  void check_sizes() {
    check_table("vision", options_.vision);
    check_table("text", options_.text);
    if (options_.loss_chunk < 1) {
      add("loss_chunk", "llava.loss_chunk = " + std::to_string(options_.loss_chunk) + " must be at least 1");
    }
    if (!missing_.empty()) {
      add("preset", "llava.preset = \"custom\" needs all sizes; missing: " + missing_ +
                        "; set them, or llava.preset = \"7b\" or \"13b\"");
    }
  }

  void check_divides(const char* key, int64_t value, int64_t step, const std::string& why) {
    if (value % step == 0) return;
    add(key, std::string("llava.") + key + " = " + std::to_string(value) + " is not divisible by " + why +
                 "; set llava." + key + " = " + near_multiples(value, step));
  }

  void check_divisions() {
    const LlavaVision& vision = options_.vision;
    const LlavaText& decoder = options_.text;
    check_divides("vision.hidden", *vision.hidden, *vision.heads,
                  "llava.vision.heads = " + std::to_string(*vision.heads));
    check_divides("vision.image", *vision.image, *vision.patch,
                  "llava.vision.patch = " + std::to_string(*vision.patch));
    check_divides("text.hidden", *decoder.hidden, 2 * *decoder.heads,
                  "twice llava.text.heads = " + std::to_string(*decoder.heads) +
                      ", as rotary positions turn halves of a head");
    if (*vision.depth + options_.tap + 1 < 0) {
      add("tap", "llava.tap = " + std::to_string(options_.tap) + " is before the first of the tower's " +
                     std::to_string(*vision.depth + 1) +
                     " hidden states; set llava.tap = " + std::to_string(-*vision.depth - 1) + " or later");
    }
    if (options_.projector_depth() == 0 && *vision.hidden != *decoder.hidden) {
      add("projector",
          "llava.projector = \"identity\" joins llava.vision.hidden = " + std::to_string(*vision.hidden) +
              " and llava.text.hidden = " + std::to_string(*decoder.hidden) +
              "; set both alike, or another projector");
    }
  }

  void check_adapters() {
    const LlavaLora& lora = options_.lora;
    const std::string rank = "llava.lora.r = " + std::to_string(lora.r);
    if (lora.r < 0) return add("lora.r", rank + " must be at least 0");
    if (lora.r == 0) {
      if (options_.trained.lora)
        add("lora.r", rank + " makes no adapters, which are to be trained; set a rank, such as 64");
      return;
    }
    if (!(lora.alpha > 0)) add("lora.alpha", "llava.lora.alpha = " + text(lora.alpha) + " must be above 0");
    if (!(lora.dropout >= 0 && lora.dropout < 1))
      add("lora.dropout", "llava.lora.dropout = " + text(lora.dropout) + " must be in [0, 1)");
    check_targets();
    const int64_t smallest = std::min(*options_.text.hidden, *options_.text.mlp);
    if (lora.r > smallest) {
      add("lora.r",
          rank + " is more than the smallest matrix has rows; set " + std::to_string(smallest) + " or less");
    }
  }

  void check_targets() {
    const std::vector<std::string> all = LlavaLora().targets;
    for (const std::string& target : options_.lora.targets) {
      if (std::find(all.begin(), all.end(), target) != all.end()) continue;
      add("lora.targets", "llava.lora.targets names \"" + target +
                              "\", which is no matrix of a decoder's layer; allowed: q_proj, k_proj, v_proj, "
                              "o_proj, gate_proj, up_proj and down_proj");
    }
    if (options_.lora.targets.empty()) {
      add("lora.targets",
          "llava.lora.targets is empty, so that no matrix has an adapter; name some, or set "
          "llava.lora.r = 0");
    }
  }

  LlavaOptions options_;
  std::string missing_;
  std::vector<LlavaProblem> found_;
};

}  // namespace

int64_t LlavaOptions::projector_depth() const {
  if (projector == "identity") return 0;
  if (projector == "linear") return 1;
  const int64_t depth = is_projector_mlp() ? projector[3] - '0' : -1;
  return depth >= 1 && depth <= 9 ? depth : -1;
}

bool LlavaOptions::is_projector_mlp() const {
  return projector.size() == 10 && projector.starts_with("mlp") && projector.ends_with("x_gelu");
}

std::vector<LlavaProblem> problems(const LlavaOptions& options) {
  return Checker(options).run();
}

LlavaOptions resolved(const LlavaOptions& options) {
  const std::vector<LlavaProblem> found = problems(options);
  if (!found.empty()) throw std::invalid_argument(found.front().message);
  return with_sizes(options);
}

int64_t LlavaOptions::image_tokens() const {
  const LlavaOptions all = resolved(*this);
  const int64_t side = *all.vision.image / *all.vision.patch;
  return side * side;
}

int64_t LlavaOptions::tower_layers() const {
  const LlavaOptions all = resolved(*this);
  return *all.vision.depth + all.tap + 1;
}

}  // namespace dtk::models
