#include "toolkit/families/llava/tokenizer.h"

#include <sentencepiece_processor.h>

#include "toolkit/core/errors.h"
#include "toolkit/core/text.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"

namespace dtk::llava {

struct Tokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

constexpr uint64_t kMaxModelBytes = 64 << 20;

template <class M>
std::unique_ptr<const M> opened(const std::filesystem::path& file) {
  FileSystem& files = posix_file_system();
  if (!files.exists(file) || files.is_folder(file))
    throw DataError(shown(file) + ": no such file; name a SentencePiece model");
  if (files.size(file) > kMaxModelBytes)
    throw DataError(shown(file) + ": " + std::to_string(files.size(file)) +
                    " bytes are too many for a SentencePiece model; allowed: up to " +
                    std::to_string(kMaxModelBytes));
  auto model = std::make_unique<M>();
  const auto status = model->processor.LoadFromSerializedProto(files.read(file, kMaxModelBytes));
  if (!status.ok()) throw DataError(shown(file) + ": no SentencePiece model");
  if (model->processor.bos_id() < 0 || model->processor.eos_id() < 0) {
    throw DataError(shown(file) +
                    ": a SentencePiece model without tokens that begin and end a text; train one with them");
  }
  return model;
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& file) : model_(opened<Model>(file)) {}
Tokenizer::~Tokenizer() = default;

int64_t Tokenizer::size() const {
  return model_->processor.GetPieceSize();
}
int64_t Tokenizer::begin() const {
  return model_->processor.bos_id();
}
int64_t Tokenizer::end() const {
  return model_->processor.eos_id();
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  const sentencepiece::ImmutableSentencePieceText pieces = model_->processor.EncodeAsImmutableProto(text);
  std::vector<Token> tokens;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < pieces.pieces_size(); ++i) {
    const auto piece = pieces.pieces(static_cast<int>(i));
    tokens.push_back({piece.id(), piece.begin(), piece.end()});
    ids.push_back(piece.id());
  }
  if (decode(ids) != text) {
    throw DataError("the tokenizer cannot write " + in_quotes(text) + " back, and gives " +
                    in_quotes(decode(ids)) +
                    "; use a SentencePiece model that knows its letters, with byte fallback and without "
                    "normalisation");
  }
  return tokens;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::vector<int> narrow(ids.begin(), ids.end());
  std::string text;
  const auto status = model_->processor.Decode(narrow, &text);
  if (!status.ok()) throw DataError("the tokenizer cannot write these tokens: " + status.ToString());
  return text;
}

}  // namespace dtk::llava
