#include "toolkit/train/peak_flops.h"

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

std::optional<double> peak_flops_of(const std::string& device_name) {
  for (const NamedPeak& peak : peaks) {
    if (!has_word(device_name, peak.word)) continue;
    if (!peak.variant.empty() && !has_word(device_name, peak.variant)) continue;
    return peak.teraflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace dtk
