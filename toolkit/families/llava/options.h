// The tables [llava] and those below it.
#pragma once
#include <dtk/models/llava_options.h>

#include "toolkit/config/config.h"
#include "toolkit/config/options_of.h"
#include "toolkit/families/llava/sizes.h"

namespace dtk::llava {

/// How a sample's turns become text (dialogue.h).
enum class DialogueStyle { plain, v1 };
constexpr auto enum_texts(DialogueStyle) {
  return std::array{"plain", "v1"};
}

/// To what length the samples of a batch are filled up: that of its longest, or max_length, which makes all
/// batches alike.
enum class Padding { longest, max };
constexpr auto enum_texts(Padding) {
  return std::array{"longest", "max"};
}

/// How a picture becomes a square: its middle, or all of it on a ground of the mean colour.
enum class AspectRatio { crop, pad };
constexpr auto enum_texts(AspectRatio) {
  return std::array{"crop", "pad"};
}

/// [llava.template]: what stands around questions and answers of style "v1". By default that of Vicuna.
struct DialogueTemplate {
  std::string system_end = " ";
  std::string question_begin = "USER: ";
  std::string question_end = " ASSISTANT:";
  std::string answer_begin = " ";
  std::string answer_end;
  bool end_token = true;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [system_end, question_begin, question_end, answer_begin, answer_end, end_token] = self;
    visit("system_end", system_end, "", "behind llava.data.system");
    visit("question_begin", question_begin, "", "before a question");
    visit("question_end", question_end, "", "behind a question");
    visit("answer_begin", answer_begin, "", "before an answer, learnt with it");
    visit("answer_end", answer_end, "", "behind an answer, learnt with it");
    visit("end_token", end_token, "", "the tokenizer's end behind each answer");
  }
  friend bool operator==(const DialogueTemplate&, const DialogueTemplate&) = default;
};

/// [llava.data]
struct DialogueOptions {
  std::string conversations;
  std::string held_out;
  std::string folder;
  std::string tokenizer;
  std::string lengths;
  DialogueStyle style = DialogueStyle::v1;
  std::string system;
  bool image_first = false;
  int64_t max_length = 2048;
  Padding pad = Padding::longest;
  AspectRatio aspect_ratio = AspectRatio::crop;
  DialogueTemplate form = {};  // a table of its own

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [conversations, held_out, folder, tokenizer, lengths, style, system, image_first, max_length, pad,
           aspect_ratio, form] = self;
    visit("conversations", conversations, "", "JSON list of {id, image, conversations: [{from, value}]}");
    visit("held_out", held_out, "",
          "list of samples that are never trained on; \"\": data.validation of conversations");
    visit("folder", folder, "", "which image is relative to; \"\": the folder of the list");
    visit("tokenizer", tokenizer, "", "file of a SentencePiece model");
    visit("lengths", lengths, "", "file of samples' lengths, written where they are not in it; \"\": none");
    visit("style", style, "", "plain: a picture and its answer alone; v1: turns as [llava.template] says");
    visit("system", system, "", "v1: what stands before the first turn");
    visit("image_first", image_first, "", "move <image> to the front of its turn, on a line of its own");
    visit("max_length", max_length, "[2, 1048576]",
          "tokens of a sample, pictures' included; longer ones are cut");
    visit("pad", pad, "", "samples of a batch are filled up to its longest, or to max_length");
    visit("aspect_ratio", aspect_ratio, "",
          "a picture becomes a square by its middle, or on a ground of the mean colour");
  }
  friend bool operator==(const DialogueOptions&, const DialogueOptions&) = default;
};

struct Options {
  models::LlavaOptions model;
  DialogueOptions data;
  MeasuredLengths lengths;  // of a plan

  template <class Self, class Visit>
  static void tables(Self& self, Visit&& visit) {
    visit("llava", self.model);
    visit("llava.vision", self.model.vision);
    visit("llava.text", self.model.text);
    visit("llava.lora", self.model.lora);
    visit("llava.data", self.data);
    visit("llava.template", self.data.form);
  }
  friend bool operator==(const Options&, const Options&) = default;
};

inline constexpr OptionsOf<Options> options_of;

}  // namespace dtk::llava
