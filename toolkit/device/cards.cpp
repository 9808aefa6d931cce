#include "toolkit/device/cards.h"

#include <algorithm>
#include <cctype>

namespace dtk {

const std::vector<Card>& cards() {
  constexpr int64_t gb = 1'000'000'000;
  static const std::vector<Card> all = {
      {"t4", "NVIDIA T4", 16 * gb, "NVIDIA T4 data sheet"},
      {"v100", "NVIDIA V100 32 GB", 32 * gb, "NVIDIA V100 data sheet"},
      {"a10", "NVIDIA A10", 24 * gb, "NVIDIA A10 data sheet"},
      {"l40s", "NVIDIA L40S", 48 * gb, "NVIDIA L40S data sheet"},
      {"a100-40", "NVIDIA A100 40 GB", 40 * gb, "NVIDIA A100 data sheet"},
      {"a100", "NVIDIA A100 80 GB", 80 * gb, "NVIDIA A100 data sheet"},
      {"h100", "NVIDIA H100", 80 * gb, "NVIDIA H100 data sheet"},
      {"h200", "NVIDIA H200", 141 * gb, "NVIDIA H200 data sheet"},
      {"rtx3090", "NVIDIA GeForce RTX 3090", 24 * gb, "nvidia.com, GeForce RTX 3090 specifications"},
      {"rtx4090", "NVIDIA GeForce RTX 4090", 24 * gb, "nvidia.com, GeForce RTX 4090 specifications"},
      {"rtx5090", "NVIDIA GeForce RTX 5090", 32 * gb, "nvidia.com, GeForce RTX 5090 specifications"},
      {"rtx6000ada", "NVIDIA RTX 6000 Ada", 48 * gb, "NVIDIA RTX 6000 Ada Generation data sheet"}};
  return all;
}

const Card* find_card(const std::string& text) {
  const auto plain = [](const std::string& name) {
    std::string letters;
    for (const char c : name) {
      if (c != ' ' && c != '-') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return letters;
  };
  const auto found = std::find_if(cards().begin(), cards().end(),
                                  [&](const Card& card) { return plain(card.name) == plain(text); });
  return found == cards().end() ? nullptr : &*found;
}

}  // namespace dtk
