#include "toolkit/families/llava/sentencepiece_model.h"

#include <cstring>
#include <functional>

#include "toolkit/core/errors.h"

namespace dtk::llava {
namespace {

// Numbers of fields in sentencepiece_model.proto.
namespace field {
constexpr uint64_t pieces = 1, trainer = 2, normalizer = 3;                             // of the model
constexpr uint64_t text = 1, score = 2, type = 3;                                       // of a piece
constexpr uint64_t model_type = 3, suffix = 24, byte_fallback = 35;                     // of the trainer
constexpr uint64_t charsmap = 2, dummy_prefix = 3, extra_whitespaces = 4, escapes = 5;  // of the normalizer
}  // namespace field

constexpr uint64_t kBpe = 2;  // of model types

/// A field of a message: a number, four bytes, or bytes of any length.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

/// Goes through a message's fields.
class Message {
 public:
  Message(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const uint64_t key = varint();
    field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.bytes = take(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.bytes = take(4);
        break;
      default:
        refuse("no SentencePiece model, or a damaged one");
    }
    return true;
  }

  [[noreturn]] void refuse(const std::string& what) const { throw DataError(file_ + ": " + what); }

 private:
  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) refuse("no SentencePiece model, or one that ends too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1).front());
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    refuse("no SentencePiece model, or a damaged one");
  }

  std::string_view bytes_;
  const std::string& file_;
};

Piece read_piece(std::string_view bytes, const std::string& file) {
  Message message(bytes, file);
  Piece piece;
  for (Field field; message.next(field);) {
    if (field.number == field::text) piece.text = field.bytes;
    if (field.number == field::score && field.bytes.size() == sizeof piece.score)
      std::memcpy(&piece.score, field.bytes.data(), sizeof piece.score);
    if (field.number == field::type) {
      if (field.value < 1 || field.value > 6) message.refuse("a piece of no type that is known");
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  const bool is_usual = piece.type != PieceType::user_defined && piece.type != PieceType::unused;
  if (!is_usual) message.refuse("a model with symbols of its user's, or unused ones, which is not read");
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& file, SentencePieceModel& model) {
  Message message(bytes, file);
  uint64_t type = 1;
  for (Field field; message.next(field);) {
    if (field.number == field::model_type) type = field.value;
    if (field.number == field::byte_fallback) model.byte_fallback = field.value != 0;
    if (field.number == field::suffix && field.value != 0)
      message.refuse("a model that has blanks end a word, which is not read");
  }
  if (type != kBpe) message.refuse("no model of byte pair encoding; train one with --model_type=bpe");
}

void read_normalizer(std::string_view bytes, const std::string& file, SentencePieceModel& model) {
  Message message(bytes, file);
  bool changes = false, collapses = true;
  for (Field field; message.next(field);) {
    if (field.number == field::charsmap) changes = !field.bytes.empty();
    if (field.number == field::extra_whitespaces) collapses = field.value != 0;
    if (field.number == field::dummy_prefix) model.add_dummy_prefix = field.value != 0;
    if (field.number == field::escapes && field.value == 0)
      message.refuse("a model that leaves blanks as they are, which is not read");
  }
  if (!changes && !collapses) return;
  message.refuse(
      "a model that changes text before it reads it; train one with --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false");
}

}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& file) {
  Message message(bytes, file);
  SentencePieceModel model;
  bool has_trainer = false, has_normalizer = false;
  for (Field field; message.next(field);) {
    if (field.number == field::pieces) model.pieces.push_back(read_piece(field.bytes, file));
    if (field.number == field::trainer) {
      read_trainer(field.bytes, file, model);
      has_trainer = true;
    }
    if (field.number == field::normalizer) {
      read_normalizer(field.bytes, file, model);
      has_normalizer = true;
    }
  }
  if (model.pieces.empty() || !has_trainer || !has_normalizer) message.refuse("no SentencePiece model");
  return model;
}

}  // namespace dtk::llava
