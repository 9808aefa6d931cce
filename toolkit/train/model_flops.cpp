#include "toolkit/train/model_flops.h"

#include <array>
#include <string_view>

namespace dtk {
namespace {

struct NamedPeak {
  std::string_view word;     // of the name, whole
  std::string_view variant;  // also in the name; "" matches any
  double teraflops;
};

// The first match counts, so variants come before the plain name.
constexpr std::array<NamedPeak, 14> peaks = {{
    {"B200", "", 2250},
    {"H200", "NVL", 835},
    {"H200", "", 989},
    {"GH200", "", 989},
    {"H100", "PCIe", 756},
    {"H100", "NVL", 835},
    {"H100", "", 989},
    {"A100", "", 312},
    {"A800", "", 312},
    {"L40S", "", 362},
    {"L4", "", 121},
    {"A40", "", 149.7},
    {"A30", "", 165},
    {"A10", "", 125},
}};

// Whether `name` holds `word` between spaces, hyphens or its ends: "A10" is not in "NVIDIA A100".
bool has_word(std::string_view name, std::string_view word) {
  const auto is_end = [&](size_t at) { return at >= name.size() || name[at] == ' ' || name[at] == '-'; };
  for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    if ((at == 0 || is_end(at - 1)) && is_end(at + word.size())) return true;
  }
  return false;
}

}  // namespace

int64_t forward_multiply_adds(const models::DitOptions& given) {
  constexpr int64_t time_features = 256;  // sines and cosines that embed t
  const models::DitOptions model = models::resolved(given);
  const int64_t hidden = *model.hidden, tokens = model.tokens();
  const int64_t square = hidden * hidden, patch = *model.patch * *model.patch;
  const auto inner = static_cast<int64_t>(static_cast<double>(hidden) * model.mlp_ratio);
  const int64_t products = 4 * square + 2 * hidden * inner;  // qkv 3, proj 1, fc1 and fc2
  const int64_t attention = 2 * tokens * tokens * hidden;    // q kᵀ, weights v
  const int64_t block = tokens * products + attention + 6 * square;
  const int64_t ends = tokens * hidden * patch * (model.channels + model.out_channels()) + 2 * square;
  return *model.depth * block + ends + time_features * hidden + square;
}

int64_t training_flops_per_image(const models::DitOptions& model) {
  return 3 * 2 * forward_multiply_adds(model);
}

std::optional<double> peak_flops_of(const std::string& device_name) {
  for (const NamedPeak& peak : peaks) {
    if (!has_word(device_name, peak.word)) continue;
    if (!peak.variant.empty() && !has_word(device_name, peak.variant)) continue;
    return peak.teraflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace dtk
