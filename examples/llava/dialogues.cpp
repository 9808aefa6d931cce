#include "llava/dialogues.h"

#include <algorithm>
#include <cstddef>

namespace dtk::examples {
namespace {

struct Words {
  std::array<const char*, kGarments> garments;  // with their article
  std::array<const char*, 4> places;
  const char *describe, *list, *what, *is, *where, *end, *yes, *no, *above, *join;
};

const Words& words_of(Language language) {
  static const Words english{
      {"a t-shirt", "a pair of trousers", "a pullover", "a dress", "a coat", "a sandal", "a shirt",
       "a sneaker", "a bag", "a boot"},
      {"at the top left", "at the top right", "at the bottom left", "at the bottom right"},
      "describe the picture.",
      "list what is there.",
      "what is ",
      "is there ",
      "where is ",
      "?",
      "yes",
      "no",
      " above ",
      " and "};
  static const Words german{{"ein T-Shirt", "eine Hose", "ein Pullover", "ein Kleid", "ein Mantel",
                             "eine Sandale", "ein Hemd", "ein Turnschuh", "eine Tasche", "ein Stiefel"},
                            {"oben links", "oben rechts", "unten links", "unten rechts"},
                            "beschreibe das Bild.",
                            "was ist wo?",
                            "was ist ",
                            "gibt es ",
                            "wo ist ",
                            "?",
                            "ja",
                            "nein",
                            " über ",
                            " und "};
  return language == Language::english ? english : german;
}

// A number below `count`, of bits that no other choice takes.
size_t chosen(uint64_t draw, int which, size_t count) {
  return static_cast<size_t>((draw >> (16 * which)) & 0xffff) * count >> 16;
}

bool stands_alone(const Scene& scene, int garment) {
  return std::count(scene.begin(), scene.end(), garment) == 1;
}

}  // namespace

std::string caption_of(const Scene& scene, Language language) {
  const Words& words = words_of(language);
  const auto name = [&](size_t place) {
    return std::string(words.garments.at(static_cast<size_t>(scene.at(place))));
  };
  return name(0) + words.join + name(1) + words.above + name(2) + words.join + name(3);
}

Exchange exchange_about(const Scene& scene, Question kind, Language language, uint64_t draw) {
  const Words& words = words_of(language);
  const size_t place = chosen(draw, 0, scene.size());
  if (kind == Question::where && !stands_alone(scene, scene.at(place))) kind = Question::what;
  const auto garment = static_cast<size_t>(scene.at(place));
  Exchange exchange{kind, language, "", ""};
  switch (kind) {
    case Question::describe:
      exchange.question = words.describe;
      exchange.answer = caption_of(scene, language);
      break;
    case Question::list: {
      std::vector<size_t> left{0, 1, 2, 3};
      exchange.question = words.list;
      for (int i = 0; !left.empty(); ++i) {
        const size_t which = chosen(draw, i, left.size());
        exchange.answer += i > 0 ? ", " : "";
        exchange.answer += words.garments.at(static_cast<size_t>(scene.at(left[which])));
        exchange.answer += std::string(" ") + words.places.at(left[which]);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
      }
      break;
    }
    case Question::what:
      exchange.question = std::string(words.what) + words.places.at(place) + words.end;
      exchange.answer = words.garments.at(garment);
      break;
    case Question::is: {
      // Half of them are there.
      std::vector<int> asked;
      const bool is_there = chosen(draw, 1, 2) == 1;
      for (int one = 0; one < kGarments; ++one) {
        if ((std::count(scene.begin(), scene.end(), one) > 0) == is_there) asked.push_back(one);
      }
      const auto of = static_cast<size_t>(asked.at(chosen(draw, 2, asked.size())));
      exchange.question = std::string(words.is) + words.garments.at(of) + words.end;
      exchange.answer = is_there ? words.yes : words.no;
      break;
    }
    case Question::where:
      exchange.question = std::string(words.where) + words.garments.at(garment) + words.end;
      exchange.answer = words.places.at(place);
      break;
  }
  return exchange;
}

const char* name_of(Question kind) {
  static constexpr std::array<const char*, 5> names{"describe", "what", "is", "where", "list"};
  return names.at(static_cast<size_t>(kind));
}

const char* name_of(Language language) {
  return language == Language::english ? "english" : "german";
}

}  // namespace dtk::examples
