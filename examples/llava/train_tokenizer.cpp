// train-tokenizer: a SentencePiece model of the lines of a file. A program of its own, without LibTorch, as
// the two libraries define a flag of one name (toolkit/families/llava/sentencepiece_model.h).
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unordered_map>

namespace {

constexpr int kFailure = 1, kUsage = 2, kData = 4;

int fail(int code, const std::string& what) {
  std::fprintf(stderr, "train-tokenizer: %s\n", what.c_str());
  return code;
}

bool is_count(const std::string& text) {
  return !text.empty() && text.size() <= 7 && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr,
                 "Usage: train-tokenizer TEXTS MODEL TOKENS\n"
                 "Writes a SentencePiece model of byte pairs for the lines of TEXTS, a new file, with TOKENS "
                 "tokens at most,\n"
                 "260 or more, and says how many there are: llava.text.vocabulary of a model that is trained "
                 "with it.\n");
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : kUsage;
  }
  const std::string texts = argv[1], model = argv[2], tokens = argv[3];
  std::error_code error;
  if (!std::filesystem::is_regular_file(texts, error))
    return fail(kData, texts + ": there is no such file; name one with a text a line");
  // 256 bytes, what begins and ends a text, and what stands for nothing known.
  if (!is_count(tokens) || std::stoi(tokens) < 260)
    return fail(kUsage, "TOKENS " + tokens +
                            ": allowed: a whole number from 260 on, of which 259 are bytes and marks");
  const auto folder = std::filesystem::absolute(model).parent_path();
  if (!std::filesystem::is_directory(folder, error))
    return fail(kUsage, model + ": the folder " + folder.string() + " does not exist; make it first");
  if (std::filesystem::exists(model, error))
    return fail(kUsage, model + ": there is such a file; name another one, or remove it first");
  // Every text can be written back: letters that it has not seen are bytes, and nothing is made uniform. The
  // library takes a prefix and writes PREFIX.model and PREFIX.vocab.
  const std::string prefix = model + ".part";
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{{"input", texts},
                                                   {"model_prefix", prefix},
                                                   {"vocab_size", tokens},
                                                   {"model_type", "bpe"},
                                                   {"byte_fallback", "true"},
                                                   {"normalization_rule_name", "identity"},
                                                   {"minloglevel", "2"},
                                                   {"remove_extra_whitespaces", "false"},
                                                   {"hard_vocab_limit", "false"},
                                                   {"pad_id", "-1"},
                                                   {"num_threads", "1"}});
  std::ifstream vocabulary(prefix + ".vocab");  // a line a token
  const auto made = std::count(std::istreambuf_iterator<char>(vocabulary), {}, '\n');
  std::filesystem::remove(prefix + ".vocab", error);
  if (!status.ok()) return fail(kFailure, texts + ": " + status.ToString());
  std::filesystem::rename(prefix + ".model", model, error);
  if (error) return fail(kFailure, model + ": " + error.message());
  std::printf("%s: %lld tokens\n", model.c_str(), static_cast<long long>(made));
  return 0;
}
