// Dialogues as tokens: what is learnt, where pictures go, what is cut, and what is refused.
#include "toolkit/families/llava/dialogue.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/llava/dialogues.h"
#include "toolkit/core/errors.h"

namespace dtk::llava {
namespace {

using test::dialogue;
using Strings = std::vector<std::string>;

struct Tokenized {
  explicit Tokenized(const nlohmann::json& one, DialogueOptions options = {})
      : tokenizer(folder.path("tokenizer.model")) {
    const auto list = read_dialogues(folder.write("one.json", nlohmann::json::array({one})), options.style);
    sequence = tokens_of(list.front(), options, tokenizer);
  }
  /// What is learnt, and what is not, as text; a picture is "*", an end "</s>".
  std::string text(bool learnt) const {
    std::string text;
    std::vector<int64_t> ids;
    const auto flush = [&] { text += tokenizer.decode(std::exchange(ids, {})); };
    for (size_t i = 0; i < sequence.ids.size(); ++i) {
      const int64_t id = sequence.ids[i];
      if ((sequence.is_answer[i] != 0) != learnt || id == tokenizer.begin()) continue;
      if (id >= 0 && id != tokenizer.end()) {
        ids.push_back(id);
        continue;
      }
      flush();
      text += id == tokenizer.end() ? "</s>" : "*";
    }
    flush();
    return text;
  }

  const test::DialogueFolder folder;
  const Tokenizer tokenizer;
  TokenSequence sequence;
};

std::string list_refused(const nlohmann::json& list, DialogueStyle style = DialogueStyle::v1,
                         bool asks = false) {
  const test::DialogueFolder folder;
  const std::string file = folder.write("list.json", list);
  const std::string text = test::error_text<DataError>([&] { read_dialogues(file, style, asks); });
  return text.starts_with(file) ? text.substr(file.size()) : text;
}

std::string refused(const nlohmann::json& one, DialogueStyle style = DialogueStyle::v1, bool asks = false) {
  return list_refused(nlohmann::json::array({one}), style, asks);
}

}  // namespace

TEST_CASE("of Vicuna's style each answer with its end is learnt, and nothing else") {
  DialogueOptions options;
  options.system = "A chat.";
  const Tokenized one(dialogue("a", {"0.png"}, {"<image>\nwhat is it?", "a bag", "wo?", "oben links: über"}),
                      options);
  // A decoded text loses the blank that its first piece begins with; one that is not learnt would be seen
  // below.
  CHECK(one.text(true) == "a bag</s>oben links: über</s>");
  CHECK(one.text(false) == "A chat. USER: *\nwhat is it? ASSISTANT: USER: wo? ASSISTANT:");
  CHECK(one.sequence.ids.front() == one.tokenizer.begin());
}

TEST_CASE("a template says what stands around questions and answers") {
  DialogueOptions options;
  options.system = "A chat.";
  options.form = {"\n", "[INST] ", " [/INST]", " ", "!", false};
  const Tokenized one(dialogue("a", {}, {"what is it?", "a bag", "wo?", "oben"}), options);
  CHECK(one.text(true) == "a bag! oben!");
  CHECK(one.text(false) == "A chat.\n[INST] what is it? [/INST][INST] wo? [/INST]");
}

TEST_CASE("what is asked is how a trained dialogue begins") {
  const Tokenized trained(dialogue("a", {"0.png"}, {"<image>\nwhat is at the top left?", "a bag"}));
  const auto asked = read_dialogues(
      trained.folder.write("ask.json", nlohmann::json::array({dialogue(
                                           "a", {"0.png"}, {"<image>\nwhat is at the top left?"})})),
      DialogueStyle::v1, /*asks=*/true);
  const TokenSequence prompt = tokens_of(asked.front(), {}, trained.tokenizer);
  REQUIRE(prompt.ids.size() < trained.sequence.ids.size());
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    CHECK(prompt.ids[i] == trained.sequence.ids[i]);
    CHECK(trained.sequence.is_answer[i] == 0);
  }
  CHECK(trained.sequence.is_answer[prompt.ids.size()] != 0);
}

TEST_CASE("a plain caption is learnt with its line's end, behind its picture") {
  DialogueOptions options;
  options.style = DialogueStyle::plain;
  const Tokenized one(dialogue("a", {"0.png"}, {"<image>\nanything", "a bag"}), options);
  CHECK(one.text(true) == "a bag\n");
  CHECK(one.text(false) == "*");
}

TEST_CASE("image_first moves a marker to the front of its turn") {
  DialogueOptions options;
  options.image_first = true;
  const Tokenized one(dialogue("a", {"0.png"}, {"what is it? <image>", "a bag"}), options);
  CHECK(one.text(false) == " USER: *\nwhat is it? ASSISTANT:");
}

TEST_CASE("pictures take their tokens, rows with a label say what comes next, and what is too long is cut") {
  TokenSequence sequence{{1, TokenSequence::kPicture, 7, 8, 2}, {0, 0, 0, 1, 1}};
  const Spread whole = spread(sequence, 3, 100);
  CHECK(whole.ids == std::vector<int64_t>{1, 0, 0, 0, 7, 8, 2});
  CHECK(whole.feature_rows == std::vector<int64_t>{0, 1, 2});
  CHECK(whole.picture_rows == std::vector<int64_t>{1, 2, 3});
  CHECK(whole.label_rows == std::vector<int64_t>{4, 5});
  CHECK(whole.labels == std::vector<int64_t>{8, 2});
  CHECK(whole.cut == 0);
  const Spread cut = spread(sequence, 3, 6);
  CHECK(cut.labels == std::vector<int64_t>{8});
  CHECK(cut.cut == 1);
  const Spread picture = spread(sequence, 3, 3);
  CHECK(picture.feature_rows == std::vector<int64_t>{0, 1});
  CHECK(picture.pictures == 1);
  CHECK(picture.labels.empty());
  CHECK(spread(sequence, 3, 1).pictures == 0);
}

TEST_CASE("lists that are no dialogues are refused with the sample and what is allowed") {
  CHECK(list_refused(nlohmann::json::object()) == ": no list of dialogues");
  CHECK(refused(dialogue("a", {}, {})) == ": sample 0 (\"a\"): \"conversations\" is no list of turns");
  CHECK(refused(
            {{"id", "a"}, {"conversations", nlohmann::json::array({{{"from", "gpt"}, {"value", "hi"}}})}}) ==
        ": sample 0 (\"a\"): an answer comes before its question; questions (\"human\") and answers "
        "(\"gpt\") "
        "take turns");
  CHECK(refused(dialogue("a", {}, {"what?", " \n"})) == ": sample 0 (\"a\"): an answer is empty");
  CHECK(refused(dialogue("a", {}, {"what?"})) == ": sample 0 (\"a\"): the last question has no answer");
  CHECK(refused(dialogue("a", {}, {"what?", "a bag"}), DialogueStyle::v1, true) ==
        ": sample 0 (\"a\"): the last question has an answer; it is to be asked");
  CHECK(refused(dialogue("a", {"0.png"}, {"what?", "a bag"})) ==
        ": sample 0 (\"a\"): 0 <image> and 1 pictures; each <image> stands for one of \"image\"");
  CHECK(refused(dialogue("a", {}, {"<image> what?", "a bag"})) ==
        ": sample 0 (\"a\"): 1 <image> and 0 pictures; each <image> stands for one of \"image\"");
  CHECK(refused(dialogue("a", {"0.png"}, {"<image> <image>?", "a bag"})) ==
        ": sample 0 (\"a\"): 2 <image> and 1 pictures; each <image> stands for one of \"image\"");
  CHECK(refused(dialogue("a", {"0.png"}, {"what?", "<image>"})) ==
        ": sample 0 (\"a\"): an answer holds <image>, which only a question may");
  CHECK(refused(dialogue("a", {}, {"what?", "a bag"}), DialogueStyle::plain) ==
        ": sample 0 (\"a\"): llava.data.style = \"plain\" takes one question with <image> and its caption");
  for (const char* const outside : {"../0.png", "/etc/passwd"}) {
    CHECK(refused(dialogue("a", {outside}, {"<image>?", "a bag"})) ==
          ": sample 0 (\"a\"): \"image\" is \"" + std::string(outside) +
              "\", which leads out of the folder of pictures; give names below it");
  }
  CHECK(
      refused({{"id", 7}, {"conversations", nlohmann::json::array({{{"from", "bot"}, {"value", "hi"}}})}}) ==
      ": sample 0 (\"7\"): a turn is from \"bot\"; allowed: \"human\" and \"gpt\"");
}

TEST_CASE("a tokenizer writes every text back, and files that are none are refused") {
  const test::DialogueFolder folder;
  const std::string none = folder.write("none.model", {1, 2});
  CHECK(test::error_text<DataError>([&] { Tokenizer tokenizer(none); }) ==
        none + ": no SentencePiece model, or a damaged one");
  CHECK(test::error_text<DataError>([&] { Tokenizer tokenizer(folder.path("gone.model")); }) ==
        folder.path("gone.model") + ": no such file; name a SentencePiece model");
  const Tokenizer tokenizer(folder.path("tokenizer.model"));
  CHECK(tokenizer.size() == 320);
  for (const char* const text : {"a bag", "  two  blanks ", "line\nline", "日本 ü", "<s> </s>", "\xff"}) {
    std::vector<int64_t> ids;
    for (const Token& token : tokenizer.encode(text)) ids.push_back(token.id);
    CHECK(tokenizer.decode(ids) == text);
  }
}

}  // namespace dtk::llava
