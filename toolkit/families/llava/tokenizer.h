// SentencePiece models, as Vicuna publishes its own ("tokenizer.model").
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::llava {

/// A token and the bytes of the text that it stands for, from `begin` to before `end`.
struct Token {
  int64_t id = 0;
  size_t begin = 0, end = 0;
};

/// Immutable; any thread may call it.
class Tokenizer {
 public:
  /// Throws DataError, which begins with `file`, for what is no SentencePiece model, or one without tokens
  /// that begin and end a text.
  explicit Tokenizer(const std::filesystem::path& file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  int64_t size() const;  ///< of its vocabulary
  /// Whether it is that of a model with so many rows of embeddings: as many, or filled up to the next
  /// multiple of 64, as files of transformers are.
  bool fits(int64_t rows) const;
  int64_t begin() const;  ///< "<s>"
  int64_t end() const;    ///< "</s>"

  /// The tokens of `text`, without those of begin and end. Throws DataError for text that they cannot be
  /// written back from, such as a letter that the model does not know.
  std::vector<Token> encode(std::string_view text) const;
  std::string decode(const std::vector<int64_t>& ids) const;

 private:
  struct Model;
  const std::unique_ptr<const Model> model_;
};

}  // namespace dtk::llava
