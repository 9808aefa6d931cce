// Dialogues in text and pictures, and the tokens that a model sees of one.
//
// Two styles. `plain`: <image> + caption + "\n", all of which is learnt. `v1`, by default that of Vicuna:
// SYSTEM + " USER: " + question + " ASSISTANT: " + answer + "</s>", and "USER: " at once for the next turn,
// else with the words of [llava.template]; what is learnt is each answer with the blank before and its "</s>"
// behind it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "toolkit/families/llava/batch.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/tokenizer.h"

namespace dtk::llava {

struct Turn {
  bool is_answer = false;
  std::string text;  // of a question: with "<image>" where a picture stands
};

struct Dialogue {
  std::string id;
  std::vector<std::string> pictures;  // files, in the order of their markers
  std::vector<Turn> turns;            // a question, an answer, a question, ...
};

/// LLaVA's list of {id, image, conversations: [{from: "human" | "gpt", value}]}; `image` may be a list, or
/// not there. Throws DataError that begins with `file`, and with number and id of the sample, for any other
/// JSON, an answer without a question, an empty one, and another number of markers than of pictures. `style`:
/// of `plain`, a question is its picture alone. `asks`: the last turn is a question; else an answer.
std::vector<Dialogue> read_dialogues(const std::filesystem::path& file, DialogueStyle style,
                                     bool asks = false);

/// A dialogue as tokens. A picture is one entry here and has as many tokens as the model makes of it.
struct TokenSequence {
  static constexpr int64_t kPicture = -1;
  std::vector<int64_t> ids;     // kPicture: the next picture
  std::vector<char> is_answer;  // of each: it is learnt
};

/// Throws DataError for text that the tokenizer cannot write back.
TokenSequence tokens_of(const Dialogue& dialogue, const DialogueOptions& options, const Tokenizer& tokenizer);

/// Where the tokens of a sequence stand, pictures at full length, cut at max_length.
struct Spread {
  std::vector<int64_t> ids;           // (T); 0 where a picture's features go
  std::vector<int64_t> feature_rows;  // of the sample's own pictures
  std::vector<int64_t> picture_rows;
  std::vector<int64_t> label_rows, labels;
  int64_t pictures = 0;  // of which some token is left
  int64_t cut = 0;       // tokens
  SampleSize size() const;
};
Spread spread(const TokenSequence& sequence, int64_t picture_tokens, int64_t max_length);

}  // namespace dtk::llava
