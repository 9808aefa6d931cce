#include "toolkit/families/llava/planned.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/loader.h"
#include "toolkit/families/llava/dialogue_source.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/io/file_system.h"

namespace dtk::llava {
namespace {

Batch batch_of(const RunConfig& config, std::vector<SampleSize> sizes, at::TensorOptions options) {
  const models::LlavaOptions model = models::resolved(options_of(config).model);
  const int64_t length = length_of(options_of(config).data, sizes);
  return allocate_batch(std::move(sizes), length, model.image_tokens(), *model.vision.image,
                        options.dtype(at::kFloat));
}

/// The same micro-batch again and again.
class PlannedDialogues final : public DataSource {
 public:
  PlannedDialogues(const RunConfig& config, std::vector<SampleSize> pattern, int64_t samples)
      : config_(config), pattern_(std::move(pattern)), samples_(samples) {}
  int64_t size() const override { return samples_; }
  std::string description() const override { return std::to_string(samples_) + " planned dialogues"; }
  bool is_weighted() const override { return true; }
  int64_t weight(int64_t index) const override { return at(index).labels; }
  std::optional<int64_t> length(int64_t index) const override { return length_among(at(index)); }
  Batch allocate(int64_t count, bool pinned) const override {
    std::vector<int64_t> first(static_cast<size_t>(count));
    std::iota(first.begin(), first.end(), 0);
    return allocate_for(first, pinned);
  }
  Batch allocate_for(const std::vector<int64_t>& samples, bool pinned) const override {
    std::vector<SampleSize> sizes;
    for (const int64_t sample : samples) sizes.push_back(at(sample));
    return batch_of(config_, std::move(sizes), at::TensorOptions().pinned_memory(pinned));
  }
  void read(int64_t, uint64_t, const Batch&, int64_t) const override {}

 private:
  const SampleSize& at(int64_t index) const { return pattern_[static_cast<size_t>(index) % pattern_.size()]; }
  const RunConfig config_;
  const std::vector<SampleSize> pattern_;
  const int64_t samples_;
};

using Figures = std::array<int64_t SampleSize::*, 4>;
constexpr Figures kFigures{&SampleSize::tokens, &SampleSize::pictures, &SampleSize::features,
                           &SampleSize::labels};

/// The largest of each figure among micro-batches, and one that has all of them, where there is one.
class Largest {
 public:
  /// `pads`: all are as long as llava.data.max_length.
  explicit Largest(bool pads) : pads_(pads) {}

  void look_at(const std::vector<SampleSize>& batch, int64_t step) {
    const SampleSize of = totals_of(batch);
    bool exceeds = count_ < batch.size(), has_all = count_ <= batch.size();
    for (size_t i = pads_ ? 1 : 0; i < kFigures.size(); ++i) {
      exceeds = exceeds || of.*kFigures[i] > most_.*kFigures[i];
      has_all = has_all && of.*kFigures[i] >= most_.*kFigures[i];
      most_.*kFigures[i] = std::max(most_.*kFigures[i], of.*kFigures[i]);
    }
    if (pads_) most_.tokens = std::max(most_.tokens, of.tokens);
    count_ = std::max(count_, batch.size());
    if (has_all && (exceeds || !step_)) {
      samples_ = batch;
      step_ = step;
    } else if (exceeds) {
      samples_.clear();  // no micro-batch so far has them all
      step_.reset();
    }
  }

  LargestBatch found() const {
    if (!samples_.empty() || count_ == 0) return {samples_, step_};
    // Shared out evenly.
    LargestBatch bound;
    const auto all = static_cast<int64_t>(count_);
    for (int64_t i = 0; i < all; ++i) {
      const auto share = [&](int64_t of) { return of / all + (i < of % all ? 1 : 0); };
      bound.samples.push_back(
          {most_.tokens, share(most_.pictures), share(most_.features), share(most_.labels)});
    }
    return bound;
  }

 private:
  const bool pads_;
  SampleSize most_;
  size_t count_ = 0;  // samples
  std::vector<SampleSize> samples_;
  std::optional<int64_t> step_;
};

// Each figure the largest that so many samples can have.
std::vector<SampleSize> bound_of(const std::vector<SampleSize>& sizes, int64_t count) {
  std::vector<SampleSize> bound(static_cast<size_t>(count));
  for (int64_t SampleSize::*const member : kFigures) {
    std::vector<int64_t> values;
    for (const SampleSize& one : sizes) values.push_back(one.*member);
    std::partial_sort(values.begin(), values.begin() + count, values.end(), std::greater<>());
    for (size_t i = 0; i < bound.size(); ++i) bound[i].*member = values[i];
  }
  return bound;
}

// Samples that the run reads, where the configuration says it.
std::optional<int64_t> samples_of_run(const RunConfig& config, const Lengths& lengths, int64_t in_epoch) {
  std::optional<int64_t> samples;
  if (lengths.steps) samples = *lengths.steps * config.data.batch;
  if (lengths.epochs) samples = std::min(samples.value_or(INT64_MAX), *lengths.epochs * in_epoch);
  return samples;
}

bool pads_to_max(const RunConfig& config) {
  return options_of(config).data.pad == Padding::max;
}

std::vector<SampleSize> largest_in_order(const RunConfig& config, const std::vector<SampleSize>& sizes) {
  Largest largest(pads_to_max(config));
  const int64_t micro = samples_of_micro_batch(config), all = std::ssize(sizes);
  for (int64_t first = 0; first < all; first += micro)
    largest.look_at({sizes.begin() + first, sizes.begin() + std::min(all, first + micro)}, 1);
  return largest.found().samples;
}

// Of the data, or of llava.data.lengths; nothing where neither is there.
std::optional<std::vector<SampleSize>> sizes_in(const RunConfig& config, const std::string& list) {
  const DialogueOptions& data = options_of(config).data;
  FileSystem& files = posix_file_system();
  if (list.empty() || data.tokenizer.empty()) return std::nullopt;
  if (files.exists(list) && files.exists(data.tokenizer)) return open_list(config, list, {})->sizes();
  if (data.lengths.empty()) return std::nullopt;
  auto known = read_lengths(files, data.lengths, lengths_key(files, config, list));
  if (!known) return std::nullopt;
  return std::move(known->sizes);
}

}  // namespace

SampleSize longest_sample(const RunConfig& config) {
  const int64_t length = options_of(config).data.max_length,
                picture = options_of(config).model.image_tokens();
  const int64_t features = picture + 1 < length ? picture : 0;
  return {length, features > 0 ? 1 : 0, features, length - features - 1};
}

void measure_dialogues(RunConfig& config) {
  const DialogueOptions& data = options_of(config).data;
  const auto training = sizes_in(config, data.conversations);
  if (!training || config.data.validation >= std::ssize(*training)) return;  // the run refuses it
  Lengths lengths{.steps = config.train.steps, .epochs = config.train.epochs};
  config.data.samples = std::ssize(*training);  // no batch is larger
  if (!data.held_out.empty()) {
    const auto held_out = sizes_in(config, data.held_out);
    if (!held_out) return;
    lengths.training = *training;
    lengths.held_out = *held_out;
  } else {
    const auto all = std::make_shared<const PlannedDialogues>(config, *training, std::ssize(*training));
    const DataSplit split = hold_out(std::shared_ptr<const DataSource>(all), config.data.validation,
                                     stream_seed(config.train.seed, "validation"));
    const auto sizes_of = [&](const DataSource& part) {
      std::vector<SampleSize> sizes;
      for (int64_t i = 0; i < part.size(); ++i)
        sizes.push_back((*training)[static_cast<size_t>(part.origin(i))]);
      return sizes;
    };
    lengths.training = sizes_of(*split.training);
    if (split.held_out) lengths.held_out = sizes_of(*split.held_out);
  }
  options_of(config).lengths.of = std::make_shared<const Lengths>(std::move(lengths));
}

Batch longest_batch(const RunConfig& config, int64_t samples, at::TensorOptions options) {
  return batch_of(config, std::vector<SampleSize>(static_cast<size_t>(samples), longest_sample(config)),
                  options);
}

LargestBatch largest_batch(const RunConfig& config, const Lengths& lengths) {
  const std::vector<SampleSize>& sizes = lengths.training;
  const int64_t micro = samples_of_micro_batch(config), all = std::ssize(sizes);
  const int64_t in_epoch = config.data.drop_last ? all / micro * micro : all;
  constexpr int64_t kMaxLookedAt = 50'000'000;
  const auto samples = samples_of_run(config, lengths, in_epoch);
  if (!samples || *samples > kMaxLookedAt || in_epoch == 0)
    return {bound_of(sizes, std::min(micro, all)), std::nullopt};
  Largest largest(pads_to_max(config));
  std::vector<int64_t> among;
  for (const SampleSize& one : sizes) among.push_back(length_among(one));
  std::vector<uint32_t> order;
  int64_t step = 0, left_in_step = 0;
  for (int64_t first = 0; first < *samples;) {
    const int64_t place = first % in_epoch, count = std::min(micro, in_epoch - place);
    if (place == 0) {
      const uint64_t seed = stream_seed(config.train.seed, "data");
      const auto epoch = static_cast<uint64_t>(first / in_epoch);
      order = config.data.order == DataOrder::grouped ? grouped_order(seed, epoch, among, micro)
                                                      : epoch_order(seed, epoch, static_cast<uint64_t>(all));
    }
    if (left_in_step == 0) {
      ++step;
      left_in_step =
          config.data.drop_last ? config.data.batch : std::min(config.data.batch, in_epoch - place);
    }
    std::vector<SampleSize> batch;
    for (int64_t i = place; i < place + count; ++i) batch.push_back(sizes[order[static_cast<size_t>(i)]]);
    largest.look_at(batch, step);
    left_in_step -= count;
    first += count;
  }
  return largest.found();
}

RunData planned_dialogues(const RunConfig& config, int64_t samples) {
  const std::shared_ptr<const Lengths>& lengths = options_of(config).lengths.of;
  std::vector<SampleSize> training{longest_sample(config)}, held_out = training;
  if (lengths) {
    training = largest_batch(config, *lengths).samples;
    held_out = largest_in_order(config, lengths->held_out);
  }
  const bool of_file = !options_of(config).data.held_out.empty();
  const int64_t shown = !of_file  ? config.data.validation
                        : lengths ? std::ssize(lengths->held_out)
                                  : 2 * config.data.batch;
  const int64_t trained = of_file ? samples : std::max<int64_t>(1, samples - config.data.validation);
  const auto dialogues = [&](const std::vector<SampleSize>& pattern, int64_t count) {
    return std::make_shared<PlannedDialogues>(config, pattern, count);
  };
  RunData data;
  data.all = data.split.training = dialogues(training, trained);
  if (shown > 0) data.split.held_out = dialogues(held_out, shown);
  return data;
}

std::string planned_note(const RunConfig& config) {
  const DialogueOptions& data = options_of(config).data;
  const std::shared_ptr<const Lengths>& lengths = options_of(config).lengths.of;
  if (!lengths) {
    return fmt::format(
        "dialogues are not there, so that all are planned with llava.data.max_length = {} tokens, a "
        "picture, and labels behind it",
        data.max_length);
  }
  const LargestBatch largest = largest_batch(config, *lengths);
  const SampleSize of = totals_of(largest.samples);
  return fmt::format(
      "the largest micro-batch{}: {} dialogues of up to {} tokens, {} pictures, {} labels",
      largest.step                        ? fmt::format(", of step {}", *largest.step)
      : lengths->steps || lengths->epochs ? ", or more: each figure is the largest of some step"
                                          : ", or more, as the run's length is not known before it",
      largest.samples.size(), data.pad == Padding::max ? data.max_length : of.tokens, of.pictures, of.labels);
}

}  // namespace dtk::llava
