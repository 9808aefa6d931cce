#include "toolkit/families/llava/dialogue_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>

#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/pictures.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

std::filesystem::path folder_for(const DialogueOptions& options, const std::filesystem::path& list) {
  return options.folder.empty() ? parent_of(list) : std::filesystem::path(options.folder);
}

void write(const std::vector<int64_t>& values, int64_t from, const at::Tensor& into) {
  int64_t* const rows = into.mutable_data_ptr<int64_t>();
  std::transform(values.begin(), values.end(), rows, [from](int64_t value) { return value + from; });
}

}  // namespace

DialogueSource::DialogueSource(const RunConfig& config, const std::filesystem::path& list,
                               const OpeningProgress& progress, std::optional<ListLengths> known)
    : options_(options_of(config).data),
      model_(models::resolved(options_of(config).model)),
      list_(list),
      folder_(folder_for(options_, list)),
      tokenizer_(options_.tokenizer),
      dialogues_(read_dialogues(list, options_.style)) {
  if (!tokenizer_.fits(*model_.text.vocabulary)) {
    throw ConfigError(
        fmt::format("llava.data.tokenizer = {} has {} tokens, and llava.text.vocabulary = {}; "
                    "say so in [llava.text], or name the tokenizer of this model",
                    toml_text(options_.tokenizer), tokenizer_.size(), *model_.text.vocabulary));
  }
  const bool measures = !known || known->sizes.size() != dialogues_.size();
  if (!measures) lengths_ = *std::move(known);
  FileSystem& files = posix_file_system();
  for (int64_t i = 0; i < size(); ++i) {
    if (progress && measures) progress("measuring dialogues", i, size());
    const std::string place = fmt::format("{}: sample {}", shown(list), i);
    for (const std::string& name : dialogues_[static_cast<size_t>(i)].pictures) {
      if (!files.exists(picture(name)) || files.is_folder(picture(name)))
        throw DataError(fmt::format("{}: {}: no such file; pictures are looked for in {}", place,
                                    in_quotes(name), shown(folder_)));
    }
    if (!measures) continue;
    try {
      const Spread spread = spread_of(i);
      if (spread.labels.empty()) {
        throw DataError(
            fmt::format("{} tokens, and llava.data.max_length = {} cuts all of its answers; raise it, "
                        "or leave this sample out",
                        std::ssize(spread.ids) + spread.cut, options_.max_length));
      }
      lengths_.cut += spread.cut > 0 ? 1 : 0;
      lengths_.sizes.push_back(spread.size());
    } catch (const DataError& error) {
      throw DataError(place + ": " + error.what());
    }
  }
}

std::filesystem::path DialogueSource::picture(const std::string& name) const {
  return folder_ / name;
}

Spread DialogueSource::spread_of(int64_t index) const {
  const Dialogue& dialogue = dialogues_.at(static_cast<size_t>(index));
  return spread(tokens_of(dialogue, options_, tokenizer_), model_.image_tokens(), options_.max_length);
}

std::string DialogueSource::description() const {
  const SampleSize all = totals_of(sizes());
  const std::string cut = lengths_.cut > 0 ? fmt::format(", {} of them cut there", lengths_.cut) : "";
  return fmt::format("{} dialogues of up to {} tokens{}, {} labels ({})", size(), all.tokens, cut, all.labels,
                     list_.filename().string());
}

DataIdentity DialogueSource::identity() const {
  ClassDigest digest;
  for (int64_t i = 0; i < size(); ++i) digest.add("", i, sizes()[static_cast<size_t>(i)].tokens);
  return {{data_file(list_), data_file(options_.tokenizer)}, {digest.finish(0, "dialogues")}};
}

int64_t length_of(const DialogueOptions& options, const std::vector<SampleSize>& sizes) {
  return options.pad == Padding::max ? options.max_length : totals_of(sizes).tokens;
}

Batch DialogueSource::allocate(int64_t, bool) const {
  throw std::logic_error("dialogues: a batch is made for its samples, which allocate_for() is told");
}

Batch DialogueSource::allocate_for(const std::vector<int64_t>& samples, bool pinned) const {
  std::vector<SampleSize> some;
  for (const int64_t sample : samples) some.push_back(sizes().at(static_cast<size_t>(sample)));
  const int64_t length = length_of(options_, some);
  return allocate_batch(std::move(some), length, model_.image_tokens(), *model_.vision.image,
                        at::TensorOptions().dtype(at::kFloat).pinned_memory(pinned));
}

void DialogueSource::read(int64_t index, uint64_t, const Batch& batch, int64_t row) const {
  const auto* const layout = dynamic_cast<const Layout*>(batch.layout.get());
  if (layout == nullptr) throw std::invalid_argument("dialogues: a batch of another source");
  const Dialogue& dialogue = dialogues_.at(static_cast<size_t>(index));
  const Spread spread = spread_of(index);
  if (spread.size() != sizes().at(static_cast<size_t>(index))) {  // what is written was allocated by them
    throw DataError(fmt::format("{}: sample {} has other lengths than {} says; remove that file",
                                shown(list_), index, shown(options_.lengths)));
  }
  write_sample(spread, layout->place(batch, row), [&](int64_t number, const at::Tensor& into) {
    read_picture(picture(dialogue.pictures[static_cast<size_t>(number)]), options_.aspect_ratio, into);
  });
}

void write_sample(const Spread& spread, const Layout::Place& place,
                  const std::function<void(int64_t, const at::Tensor&)>& picture) {
  std::vector<int64_t> ids = spread.ids;
  ids.resize(static_cast<size_t>(place.parts.ids.size(0)), 0);
  write(ids, 0, place.parts.ids);
  write(spread.feature_rows, place.first_feature, place.parts.feature_rows);
  write(spread.picture_rows, place.first_row, place.parts.picture_rows);
  write(spread.label_rows, place.first_row, place.parts.label_rows);
  write(spread.labels, 0, place.parts.labels);
  for (int64_t i = 0; i < spread.pictures; ++i) picture(i, place.parts.pictures.select(0, i));
}

std::shared_ptr<const DialogueSource> open_list(const RunConfig& config, const std::filesystem::path& list,
                                                const OpeningProgress& progress) {
  const std::string& file = options_of(config).data.lengths;
  if (file.empty()) return std::make_shared<const DialogueSource>(config, list, progress);
  FileSystem& files = posix_file_system();
  if (!files.is_folder(parent_of(file)))
    throw DataError(shown(file) + ": its folder does not exist; make it first, or name a file in another");
  const LengthsKey key = lengths_key(files, config, list);
  std::optional<ListLengths> known = read_lengths(files, file, key);
  const bool is_new = !known;
  auto source = std::make_shared<const DialogueSource>(config, list, progress, std::move(known));
  if (is_new) write_lengths(files, file, key, source->lengths());
  return source;
}

RunData open_dialogues(const LoadedConfig& loaded, const DataIdentity* before,
                       const OpeningProgress& progress) {
  const RunConfig& config = loaded.config;
  const DialogueOptions& data = options_of(config).data;
  for (const auto& [key, value, what] :
       {std::tuple("conversations", data.conversations, "a JSON list of dialogues"),
        std::tuple("tokenizer", data.tokenizer, "a SentencePiece model")}) {
    if (!value.empty()) continue;
    throw ConfigError(fmt::format("{}llava.data.{} is not set; train.model = \"llava\" needs it: {}",
                                  location_of(loaded, "train.model"), key, what));
  }
  const models::LlavaBase base = options_of(config).model.base;
  if (models::is_packed(base) && before == nullptr && config.train.init_from.empty()) {
    throw ConfigError(location_of(loaded, "llava.base") + setting("llava.base", policies::text_of(base)) +
                      " needs weights to begin with, as what is drawn is not worth keeping in few bits; set "
                      "train.init_from, or choose another llava.base");
  }
  try {
    const Tokenizer tokenizer(data.tokenizer);
  } catch (const DataError& error) {
    throw DataError(location_of(loaded, "llava.data.tokenizer") + error.what());
  }
  const auto opened = [&](const std::string& key,
                          const std::string& list) -> std::shared_ptr<const DataSource> {
    try {
      return open_list(config, list, progress);
    } catch (const LengthsError& error) {
      throw DataError(location_of(loaded, "llava.data.lengths") + error.what());
    } catch (const DataError& error) {
      throw DataError(location_of(loaded, key) + error.what());
    } catch (const ConfigError& error) {
      throw ConfigError(location_of(loaded, "llava.data.tokenizer") + error.what());
    }
  };
  RunData run;
  run.all = opened("llava.data.conversations", data.conversations);
  if (!data.held_out.empty()) {
    run.split = {run.all, opened("llava.data.held_out", data.held_out)};
    return run;
  }
  if (config.data.validation >= run.all->size() && before == nullptr) {
    throw ConfigError(fmt::format("{}data.validation = {} leaves nothing to train on: {}; allowed: [0, {}]",
                                  location_of(loaded, "data.validation"), config.data.validation,
                                  run.all->description(), run.all->size() - 1));
  }
  run.split = hold_out(run.all, config.data.validation, stream_seed(config.train.seed, "validation"), before);
  return run;
}

}  // namespace dtk::llava
