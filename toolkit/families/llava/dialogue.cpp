#include "toolkit/families/llava/dialogue.h"

#include <algorithm>
#include <string_view>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

constexpr std::string_view kMarker = "<image>";
constexpr uint64_t kMaxListBytes = uint64_t{4} << 30;
constexpr int kMaxDepth = 8;

int64_t markers_in(std::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find(kMarker); at != text.npos; at = text.find(kMarker, at + kMarker.size())) ++count;
  return count;
}

/// One entry of the list.
class Entry {
 public:
  Entry(const nlohmann::json& json, std::string place) : json_(json), place_(std::move(place)) {}

  Dialogue read(DialogueStyle style, bool asks) {
    if (!json_.is_object()) fail("it is no object; each is {id, image, conversations}");
    Dialogue dialogue;
    if (const auto id = json_.find("id"); id != json_.end())
      dialogue.id = id->is_string() ? id->get<std::string>() : id->dump();
    if (!dialogue.id.empty()) place_ += " (" + in_quotes(dialogue.id) + ")";
    read_pictures(dialogue);
    read_turns(dialogue);
    if (dialogue.turns.back().is_answer == asks)
      fail(asks ? "the last question has an answer; it is to be asked" : "the last question has no answer");
    if (style == DialogueStyle::plain) check_plain(dialogue, asks);
    check_markers(dialogue);
    return dialogue;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(place_ + ": " + what); }

  void read_pictures(Dialogue& dialogue) const {
    const auto found = json_.find("image");
    if (found == json_.end()) return;
    const auto add = [&](const nlohmann::json& one) {
      if (!one.is_string() || one.get<std::string>().empty()) fail("\"image\" is no name of a file");
      const std::filesystem::path name = one.get<std::string>();
      if (name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end()) {
        fail("\"image\" is " + in_quotes(name.string()) +
             ", which leads out of the folder of pictures; give names below it");
      }
      dialogue.pictures.push_back(name.string());
    };
    if (!found->is_array()) return add(*found);
    for (const nlohmann::json& one : *found) add(one);
  }

  void read_turns(Dialogue& dialogue) const {
    const auto found = json_.find("conversations");
    if (found == json_.end() || !found->is_array() || found->empty())
      fail("\"conversations\" is no list of turns");
    for (const nlohmann::json& turn : *found) {
      const auto text = [&](const char* key) {
        const auto value = turn.is_object() ? turn.find(key) : turn.end();
        if (!turn.is_object() || value == turn.end() || !value->is_string())
          fail("a turn is {\"from\": \"human\" or \"gpt\", \"value\": text}");
        return value->get<std::string>();
      };
      const std::string from = text("from"), value = text("value");
      if (!is_one_of(from, {"human", "gpt"}))
        fail("a turn is from " + in_quotes(from) + "; allowed: \"human\" and \"gpt\"");
      const bool is_answer = from == "gpt", is_due = dialogue.turns.size() % 2 == 1;
      if (is_answer != is_due) {
        fail(is_answer
                 ? "an answer comes before its question; questions (\"human\") and answers (\"gpt\") take "
                   "turns"
                 : "a question follows another; questions (\"human\") and answers (\"gpt\") take turns");
      }
      if (is_answer && value.find_first_not_of(" \t\n") == value.npos) fail("an answer is empty");
      dialogue.turns.push_back({is_answer, value});
    }
  }

  void check_plain(const Dialogue& dialogue, bool asks) const {
    if (dialogue.turns.size() != (asks ? 1 : 2) || markers_in(dialogue.turns[0].text) == 0)
      fail("llava.data.style = \"plain\" takes one question with <image> and its caption");
  }

  void check_markers(const Dialogue& dialogue) const {
    int64_t markers = 0;
    for (const Turn& turn : dialogue.turns) {
      if (turn.is_answer && markers_in(turn.text) > 0)
        fail("an answer holds <image>, which only a question may");
      markers += markers_in(turn.text);
    }
    if (markers != std::ssize(dialogue.pictures)) {
      fail(fmt::format("{} <image> and {} pictures; each <image> stands for one of \"image\"", markers,
                       dialogue.pictures.size()));
    }
  }

  const nlohmann::json& json_;
  std::string place_;
};

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}

// "<image>\nwhat is it?", wherever the marker stood.
std::string with_image_first(std::string text) {
  std::string markers;
  for (size_t at = text.find(kMarker); at != text.npos; at = text.find(kMarker)) {
    text.erase(at, kMarker.size());
    markers += std::string(kMarker) + "\n";
  }
  return markers.empty() ? text : markers + trimmed(text);
}

/// Joins text, pictures and ends of answers into tokens.
class Sequence {
 public:
  explicit Sequence(const Tokenizer& tokenizer) : tokenizer_(tokenizer) { add(tokenizer.begin(), false); }

  void text(std::string_view text, bool is_answer) {
    if (is_answer) answers_.emplace_back(piece_.size(), piece_.size() + text.size());
    piece_ += text;
  }
  void question(std::string_view text) {
    for (size_t at = text.find(kMarker); at != text.npos; at = text.find(kMarker)) {
      this->text(text.substr(0, at), false);
      picture();
      text.remove_prefix(at + kMarker.size());
    }
    this->text(text, false);
  }
  void picture() {
    flush();
    add(TokenSequence::kPicture, false);
  }
  void end_of_answer() {
    flush();
    add(tokenizer_.end(), true);
  }
  TokenSequence finish() {
    flush();
    return std::move(sequence_);
  }

 private:
  void add(int64_t id, bool is_answer) {
    sequence_.ids.push_back(id);
    sequence_.is_answer.push_back(is_answer);
  }
  // A token that begins before an answer, with the blank in front of it, is the answer's.
  void flush() {
    if (piece_.empty()) return;
    for (const Token& token : tokenizer_.encode(piece_)) {
      const bool learnt = std::any_of(answers_.begin(), answers_.end(), [&](const auto& answer) {
        return token.begin < answer.second && std::max(token.end, token.begin + 1) > answer.first;
      });
      add(token.id, learnt);
    }
    piece_.clear();
    answers_.clear();
  }

  const Tokenizer& tokenizer_;
  TokenSequence sequence_;
  std::string piece_;
  std::vector<std::pair<size_t, size_t>> answers_;  // in piece_
};

}  // namespace

std::vector<Dialogue> read_dialogues(const std::filesystem::path& file, DialogueStyle style, bool asks) {
  FileSystem& files = posix_file_system();
  if (!files.exists(file) || files.is_folder(file))
    throw DataError(shown(file) + ": no such file; name a JSON list of dialogues");
  nlohmann::json list;
  try {
    list = parse_strict_json(files.read(file, kMaxListBytes), shown(file), kMaxDepth);
  } catch (const FileError& error) {
    throw DataError(error.what());
  }
  if (!list.is_array() || list.empty()) throw DataError(shown(file) + ": no list of dialogues");
  std::vector<Dialogue> dialogues;
  for (size_t i = 0; i < list.size(); ++i)
    dialogues.push_back(Entry(list[i], fmt::format("{}: sample {}", shown(file), i)).read(style, asks));
  return dialogues;
}

TokenSequence tokens_of(const Dialogue& dialogue, const DialogueOptions& options,
                        const Tokenizer& tokenizer) {
  Sequence sequence(tokenizer);
  if (options.style == DialogueStyle::plain) {
    for (size_t i = 0; i < dialogue.pictures.size(); ++i) sequence.picture();
    if (dialogue.turns.back().is_answer) sequence.text(dialogue.turns.back().text + "\n", /*is_answer=*/true);
    return sequence.finish();
  }
  const DialogueTemplate& form = options.form;
  bool is_first = true;
  for (const Turn& turn : dialogue.turns) {
    if (turn.is_answer) {
      // With the blank before it, which most vocabularies have in one token with the first word: a question
      // ends as it does where it is asked.
      sequence.text(form.answer_begin + turn.text + form.answer_end, /*is_answer=*/true);
      if (form.end_token) sequence.end_of_answer();
      continue;
    }
    sequence.text((is_first ? options.system + form.system_end : "") + form.question_begin,
                  /*is_answer=*/false);
    sequence.question(options.image_first ? with_image_first(turn.text) : turn.text);
    sequence.text(form.question_end, /*is_answer=*/false);
    is_first = false;
  }
  return sequence.finish();
}

SampleSize Spread::size() const {
  return {std::ssize(ids), pictures, std::ssize(picture_rows), std::ssize(labels)};
}

Spread spread(const TokenSequence& sequence, int64_t picture_tokens, int64_t max_length) {
  Spread spread;
  int64_t place = 0, pictures = 0;
  for (size_t i = 0; i < sequence.ids.size(); ++i) {
    const bool is_picture = sequence.ids[i] == TokenSequence::kPicture;
    const int64_t length = is_picture ? picture_tokens : 1;
    const int64_t left = std::clamp<int64_t>(max_length - place, 0, length);
    for (int64_t k = 0; k < left; ++k) {
      spread.ids.push_back(is_picture ? 0 : sequence.ids[i]);
      if (!is_picture) continue;
      spread.feature_rows.push_back(pictures * picture_tokens + k);
      spread.picture_rows.push_back(place + k);
    }
    if (is_picture && left > 0) spread.pictures = ++pictures;
    if (sequence.is_answer[i] != 0 && left > 0) {
      spread.label_rows.push_back(place - 1);
      spread.labels.push_back(sequence.ids[i]);
    }
    place += length;
  }
  spread.cut = place - std::ssize(spread.ids);
  return spread;
}

}  // namespace dtk::llava
