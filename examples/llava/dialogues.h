// Dialogues about pictures of four photographs each.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dtk::examples {

enum class Language { english, german };
/// describe: the four garments, row by row. what: at one place. is: whether one is there. where: its place.
/// list: each garment with its place, in any order.
enum class Question { describe, what, is, where, list };

/// The classes of four photographs: top left, top right, bottom left, bottom right.
using Scene = std::array<int, 4>;

struct Exchange {
  Question kind;
  Language language;
  std::string question, answer;
};

/// `draw`: 64 bits that are uniform, which choose place, garment, yes or no, and order. `where` asks for a
/// garment that stands in one place alone; where there is none, `what` takes its place.
Exchange exchange_about(const Scene& scene, Question kind, Language language, uint64_t draw);

/// "a coat and a bag above a boot and a dress".
std::string caption_of(const Scene& scene, Language language);

/// Number of garments, whose names and classes are those of Fashion-MNIST.
inline constexpr int kGarments = 10;

const char* name_of(Question kind);
const char* name_of(Language language);

}  // namespace dtk::examples
