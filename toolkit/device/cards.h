// Graphics cards that people plan for by name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk {

struct Card {
  std::string name;    // as --max-batch takes it, in any case: "h100"
  std::string shown;   // "NVIDIA H100"
  int64_t bytes = 0;   // that its maker states, in powers of 1000; error correction may take some of them
  std::string source;  // the maker's page or sheet that states it
};

const std::vector<Card>& cards();
/// "rtx4090" for "RTX 4090" and "rtx-4090" too; null: not one of cards().
const Card* find_card(const std::string& text);

}  // namespace dtk
