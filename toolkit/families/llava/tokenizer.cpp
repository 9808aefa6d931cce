#include "toolkit/families/llava/tokenizer.h"

#include <array>
#include <charconv>
#include <optional>
#include <queue>
#include <unordered_map>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/sentencepiece_model.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

constexpr uint64_t kMaxModelBytes = 64 << 20;
constexpr std::string_view kBlank = "\xe2\x96\x81";  // U+2581, which stands for a blank
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

SentencePieceModel read_model(const std::filesystem::path& file) {
  FileSystem& files = posix_file_system();
  if (!files.exists(file) || files.is_folder(file))
    throw DataError(shown(file) + ": no such file; name a SentencePiece model");
  return parse_sentencepiece(files.read(file, kMaxModelBytes), shown(file));
}

// Of a piece "<0x0A>".
size_t byte_of(const std::string& text, const std::filesystem::path& file) {
  unsigned value = 0;
  const char* const begin = text.data() + 3;
  const bool is_long = text.size() == 6 && text.starts_with("<0x") && text.back() == '>';
  if (is_long && std::from_chars(begin, begin + 2, value, 16).ptr == begin + 2) return value;
  throw DataError(
      fmt::format("{}: no SentencePiece model: its byte {} is none", shown(file), in_quotes(text)));
}

// Bytes of the UTF-8 character that a text begins with, one for what is none.
size_t character_at(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  const size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  return std::min(length, text.size() - at);
}

}  // namespace

struct Tokenizer::Model {
  explicit Model(const std::filesystem::path& file) : model(read_model(file)) {
    bytes.fill(-1);
    for (size_t i = 0; i < model.pieces.size(); ++i) {
      const Piece& piece = model.pieces[i];
      const auto id = static_cast<int64_t>(i);
      if (piece.type == PieceType::normal) ids.emplace(piece.text, id);
      if (piece.type == PieceType::unknown) unknown = id;
      if (piece.type == PieceType::control && piece.text == "<s>") begin = id;
      if (piece.type == PieceType::control && piece.text == "</s>") end = id;
      // "<0x0A>"
      if (piece.type == PieceType::byte) bytes.at(byte_of(piece.text, file)) = id;
    }
    if (begin < 0 || end < 0 || unknown < 0) {
      throw DataError(shown(file) +
                      ": a SentencePiece model without tokens that begin and end a text (<s>, </s>) and "
                      "one for what it does not know; train one with them");
    }
  }

  const SentencePieceModel model;
  std::unordered_map<std::string, int64_t> ids;  // of what text is made of
  std::array<int64_t, 256> bytes{};
  int64_t begin = -1, end = -1, unknown = -1;
};

namespace {

// Text with blanks as pieces have them, and for each of its bytes where it comes from.
struct Escaped {
  std::string text;
  std::vector<size_t> origin;  // one more than bytes
};

Escaped escaped_blanks(std::string_view text, bool add_dummy_prefix) {
  Escaped escaped;
  const auto add = [&](std::string_view bytes, size_t from, bool one_by_one) {
    for (size_t i = 0; i < bytes.size(); ++i) escaped.origin.push_back(from + (one_by_one ? i : 0));
    escaped.text += bytes;
  };
  if (add_dummy_prefix && !text.empty()) add(kBlank, 0, false);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') {
      add(kBlank, i, false);
    } else {
      add(text.substr(i, 1), i, true);
    }
  }
  escaped.origin.push_back(text.size());
  return escaped;
}

// A run of the escaped text; empty once it was joined to the one before it.
struct Symbol {
  size_t begin = 0, size = 0;
  int64_t previous = -1, next = -1;
};

// Two neighbours that are a piece together.
struct Pair {
  int64_t left, right;
  float score;
  size_t size;
  // The highest score first, of equals the leftmost.
  bool operator<(const Pair& other) const {
    return score < other.score || (score == other.score && left > other.left);
  }
};

/// Joins neighbours, best pair first, as the model was trained to.
class Merging {
 public:
  Merging(std::string_view text, const std::vector<Piece>& pieces,
          const std::unordered_map<std::string, int64_t>& ids)
      : text_(text), pieces_(pieces), ids_(ids) {
    for (size_t at = 0; at < text.size(); at += symbols_.back().size) {
      const auto number = static_cast<int64_t>(symbols_.size());
      symbols_.push_back({at, character_at(text, at), number - 1, number + 1});
    }
    if (!symbols_.empty()) symbols_.back().next = -1;
    for (int64_t i = 1; i < static_cast<int64_t>(symbols_.size()); ++i) offer(i - 1, i);
    while (!pairs_.empty()) join_best();
  }

  const std::vector<Symbol>& symbols() const { return symbols_; }

 private:
  Symbol& at(int64_t number) { return symbols_[static_cast<size_t>(number)]; }

  void offer(int64_t left, int64_t right) {
    if (left < 0 || right < 0) return;
    const size_t size = at(left).size + at(right).size;
    const auto found = ids_.find(std::string(text_.substr(at(left).begin, size)));
    if (found != ids_.end())
      pairs_.push({left, right, pieces_[static_cast<size_t>(found->second)].score, size});
  }

  void join_best() {
    const Pair best = pairs_.top();
    pairs_.pop();
    Symbol &left = at(best.left), &right = at(best.right);
    // One of the two has been joined to another since.
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) return;
    left.size = best.size;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = best.left;
    offer(left.previous, best.left);
    offer(best.left, left.next);
  }

  const std::string_view text_;
  const std::vector<Piece>& pieces_;
  const std::unordered_map<std::string, int64_t>& ids_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> pairs_;
};

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& file) : model_(std::make_unique<Model>(file)) {}
Tokenizer::~Tokenizer() = default;

int64_t Tokenizer::size() const {
  return std::ssize(model_->model.pieces);
}
bool Tokenizer::fits(int64_t rows) const {
  constexpr int64_t kMultiple = 64;
  const int64_t more = rows - size();
  return more == 0 || (more > 0 && more <= kMultiple && rows % kMultiple == 0);
}
int64_t Tokenizer::begin() const {
  return model_->begin;
}
int64_t Tokenizer::end() const {
  return model_->end;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  const Escaped escaped = escaped_blanks(text, model_->model.add_dummy_prefix);
  const Merging merging(escaped.text, model_->model.pieces, model_->ids);
  std::vector<Token> tokens;
  std::vector<int64_t> ids;
  for (const Symbol& symbol : merging.symbols()) {
    if (symbol.size == 0) continue;
    const std::string piece = escaped.text.substr(symbol.begin, symbol.size);
    const auto add = [&](int64_t id, size_t from, size_t to) {
      tokens.push_back({id, escaped.origin[from], escaped.origin[to]});
      ids.push_back(id);
    };
    const auto found = model_->ids.find(piece);
    if (found != model_->ids.end() || !model_->model.byte_fallback) {
      add(found != model_->ids.end() ? found->second : model_->unknown, symbol.begin,
          symbol.begin + symbol.size);
      continue;
    }
    for (size_t i = 0; i < piece.size(); ++i) {
      const int64_t id = model_->bytes.at(static_cast<uint8_t>(piece[i]));
      add(id >= 0 ? id : model_->unknown, symbol.begin + i, symbol.begin + i + 1);
    }
  }
  if (const std::string back = decode(ids); back != text) {
    throw DataError(
        fmt::format("the tokenizer cannot write {} back, and gives {}; use a SentencePiece model that knows "
                    "its letters, with byte fallback",
                    in_quotes(text), in_quotes(back)));
  }
  return tokens;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  bool is_first = true;
  for (const int64_t id : ids) {
    if (id < 0 || id >= size()) throw DataError(fmt::format("the tokenizer has no token {}", id));
    const Piece& piece = model_->model.pieces[static_cast<size_t>(id)];
    if (piece.type == PieceType::control) continue;
    if (piece.type == PieceType::unknown) {
      text += kReplacement;
    } else if (piece.type == PieceType::byte) {
      text += static_cast<char>(std::stoul(piece.text.substr(3, 2), nullptr, 16));
    } else {
      std::string_view rest = piece.text;
      if (is_first && model_->model.add_dummy_prefix && rest.starts_with(kBlank))
        rest.remove_prefix(kBlank.size());
      for (size_t at = rest.find(kBlank); at != rest.npos; at = rest.find(kBlank)) {
        text += rest.substr(0, at);
        text += ' ';
        rest.remove_prefix(at + kBlank.size());
      }
      text += rest;
    }
    is_first = false;
  }
  return text;
}

}  // namespace dtk::llava
