#include "toolkit/families/llava/planned.h"

#include <algorithm>
#include <string>

#include "toolkit/families/llava/trainable.h"

namespace dtk::llava {
namespace {

class PlannedDialogues final : public DataSource {
 public:
  PlannedDialogues(const RunConfig& config, int64_t samples) : config_(config), samples_(samples) {}
  int64_t size() const override { return samples_; }
  std::string description() const override {
    return std::to_string(samples_) + " planned dialogues of " +
           std::to_string(options_of(config_).data.max_length) + " tokens";
  }
  bool is_weighted() const override { return true; }
  int64_t weight(int64_t) const override { return longest_sample(config_).labels; }
  Batch allocate(int64_t count, bool pinned) const override {
    return planned_batch(config_, count, at::TensorOptions().pinned_memory(pinned));
  }
  void read(int64_t, uint64_t, const Batch&, int64_t) const override {}

 private:
  const RunConfig config_;
  const int64_t samples_;
};

}  // namespace

SampleSize longest_sample(const RunConfig& config) {
  const int64_t length = options_of(config).data.max_length,
                picture = options_of(config).model.image_tokens();
  const int64_t features = picture + 1 < length ? picture : 0;
  return {length, features > 0 ? 1 : 0, features, length - features - 1};
}

Batch planned_batch(const RunConfig& config, int64_t samples, at::TensorOptions options) {
  const models::LlavaOptions model = models::resolved(options_of(config).model);
  return allocate_batch(std::vector<SampleSize>(static_cast<size_t>(samples), longest_sample(config)),
                        options_of(config).data.max_length, model.image_tokens(), *model.vision.image,
                        options.dtype(at::kFloat));
}

RunData planned_dialogues(const RunConfig& config, int64_t samples) {
  const auto dialogues = [&](int64_t count) { return std::make_shared<PlannedDialogues>(config, count); };
  const int64_t held_out = config.data.validation;
  if (options_of(config).data.held_out.empty()) {
    const std::shared_ptr<const DataSource> all = dialogues(samples);
    if (held_out == 0 || held_out >= samples) return {all, {all, nullptr}};
    return {all, {dialogues(samples - held_out), dialogues(held_out)}};
  }
  return {dialogues(samples), {dialogues(samples), dialogues(2 * config.data.batch)}};
}

}  // namespace dtk::llava
