// train-tokenizer: a SentencePiece model of the lines of a file. A program of its own, without LibTorch, as
// the two libraries define a flag of one name (toolkit/families/llava/sentencepiece_model.h).
#include <sentencepiece_trainer.h>

#include <cstdio>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(
        stderr,
        "Usage: train-tokenizer TEXTS MODEL TOKENS\n"
        "Writes a SentencePiece model of byte pairs for the lines of TEXTS, with TOKENS tokens at most.\n");
    return 2;
  }
  // Every text can be written back: letters that it has not seen are bytes, and nothing is made uniform. The
  // library takes a prefix and writes PREFIX.model and PREFIX.vocab.
  const std::string prefix = std::string(argv[2]) + ".part";
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + std::string(argv[1]) + " --model_prefix=" + prefix + " --vocab_size=" + argv[3] +
      " --model_type=bpe --byte_fallback=true --normalization_rule_name=identity --minloglevel=2"
      " --remove_extra_whitespaces=false --hard_vocab_limit=false --pad_id=-1 --num_threads=1");
  std::error_code error;
  std::filesystem::remove(prefix + ".vocab", error);
  if (status.ok()) std::filesystem::rename(prefix + ".model", argv[2], error);
  if (status.ok() && !error) return 0;
  std::fprintf(stderr, "train-tokenizer: %s\n",
               status.ok() ? error.message().c_str() : status.ToString().c_str());
  return 1;
}
