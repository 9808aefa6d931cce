// Dialogues as samples.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/families/llava/dialogue.h"
#include "toolkit/families/llava/lengths.h"

namespace dtk::llava {

/// A list of dialogues, whose texts are tokenized when it is opened, for their lengths, where these are not
/// known, and again when they are read; a batch is as large as its samples are. Weights are the counts of
/// their labels.
class DialogueSource final : public DataSource {
 public:
  /// Throws DataError for lists, tokenizers and samples that cannot be used, all of which are looked at, and
  /// ConfigError for a tokenizer of another vocabulary than the model's.
  DialogueSource(const RunConfig& config, const std::filesystem::path& list, const OpeningProgress& progress,
                 std::optional<ListLengths> known = std::nullopt);

  int64_t size() const override { return std::ssize(dialogues_); }
  const std::vector<SampleSize>& sizes() const { return lengths_.sizes; }
  const ListLengths& lengths() const { return lengths_; }
  std::string description() const override;
  DataIdentity identity() const override;
  bool is_weighted() const override { return true; }
  int64_t weight(int64_t index) const override { return sizes().at(static_cast<size_t>(index)).labels; }
  std::optional<int64_t> length(int64_t index) const override {
    return length_among(sizes().at(static_cast<size_t>(index)));
  }
  Batch allocate(int64_t count, bool pinned) const override;
  Batch allocate_for(const std::vector<int64_t>& samples, bool pinned) const override;
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override;

 private:
  std::filesystem::path picture(const std::string& name) const;
  Spread spread_of(int64_t index) const;

  const DialogueOptions options_;
  const models::LlavaOptions model_;
  const std::filesystem::path list_, folder_;
  const Tokenizer tokenizer_;
  std::vector<Dialogue> dialogues_;
  ListLengths lengths_;
};

/// Opens a list; reads its lengths from llava.data.lengths, or writes them there. Throws as DialogueSource,
/// read_lengths() and write_lengths().
std::shared_ptr<const DialogueSource> open_list(const RunConfig& config, const std::filesystem::path& list,
                                                const OpeningProgress& progress);

/// Tokens to which the samples of a batch are filled up.
int64_t length_of(const DialogueOptions& options, const std::vector<SampleSize>& sizes);

/// Writes a sample to its place in a batch; `picture` reads one of its own by number.
void write_sample(const Spread& spread, const Layout::Place& place,
                  const std::function<void(int64_t number, const at::Tensor& into)>& picture);

/// What [llava.data] names.
RunData open_dialogues(const LoadedConfig& loaded, const DataIdentity* before,
                       const OpeningProgress& progress);

}  // namespace dtk::llava
