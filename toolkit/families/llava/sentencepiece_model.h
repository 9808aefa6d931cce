// Files of SentencePiece ("tokenizer.model"), which are one protobuf message.
//
// Read here and not by SentencePiece's own library: that defines FLAGS_minloglevel, as libc10 does, of
// another size, so that in one process it writes over LibTorch's flags.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::llava {

/// As the file numbers them.
enum class PieceType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

struct SentencePieceModel {
  std::vector<Piece> pieces;  // by id
  bool byte_fallback = false;
  bool add_dummy_prefix = true;  // a blank before each text
};

/// Throws DataError that begins with `file`, the text's name: damaged, no such message, no model of byte pair
/// encoding, or one that changes text before it reads it. Takes memory in proportion to `bytes`.
SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& file);

}  // namespace dtk::llava
