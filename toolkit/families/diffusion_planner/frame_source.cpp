#include "toolkit/families/diffusion_planner/frame_source.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {

FrameSource::FrameSource(const std::filesystem::path& folder_or_list, FrameOptions options)
    : frames_(folder_or_list, std::move(options)) {}

DataIdentity FrameSource::identity() const {
  ClassDigest digest;
  for (int64_t i = 0; i < size(); ++i) {
    std::error_code none;  // one that is gone since is told of where it is read
    const auto bytes = std::filesystem::file_size(frames_.path(i), none);
    digest.add(frames_.name(i), i, none ? 0 : static_cast<int64_t>(bytes));
  }
  return {{}, {digest.finish(0, "frames")}};
}

Batch FrameSource::allocate(int64_t count, bool pinned) const {
  return batch_of(frames_.allocate(count, pinned));
}

void FrameSource::read(int64_t index, uint64_t, const Batch& batch, int64_t row) const {
  frames_.read(index, frame_batch(batch), row);
}

Batch batch_of(FrameBatch frames) {
  Batch batch;
  FrameBatch::fields(
      frames, [&](std::string_view, at::Tensor& tensor) { batch.tensors.push_back(std::move(tensor)); });
  return batch;
}

FrameBatch frame_batch(Batch batch) {
  FrameBatch frames;
  size_t taken = 0;
  FrameBatch::fields(frames, [&](std::string_view, at::Tensor& tensor) {
    if (taken < batch.tensors.size()) tensor = std::move(batch.tensors[taken]);
    ++taken;
  });
  if (taken == batch.tensors.size()) return frames;
  throw std::invalid_argument(fmt::format("diffusion_planner batch: {} tensors; a batch of frames has {}",
                                          batch.tensors.size(), taken));
}

namespace {

class PlannedFrames final : public DataSource {
 public:
  PlannedFrames(const models::DiffusionPlannerOptions& model, int64_t samples)
      : arrays_(frame_arrays(layout_of(model), sizes_of(model))), samples_(samples) {}
  int64_t size() const override { return samples_; }
  std::string description() const override { return std::to_string(samples_) + " planned frames"; }
  Batch allocate(int64_t count, bool pinned) const override {
    return batch_of(allocate_frames(arrays_, count, at::TensorOptions().pinned_memory(pinned)));
  }
  void read(int64_t, uint64_t, const Batch&, int64_t) const override {}

 private:
  const std::vector<NpzArray> arrays_;
  const int64_t samples_;
};

std::shared_ptr<const DataSource> frames_of(const LoadedConfig& loaded, const std::string& key,
                                            const std::string& path) try {
  return std::make_shared<FrameSource>(path, frame_options_of(loaded.config));
} catch (const DataError& error) {
  throw DataError(location_of(loaded, key) + error.what());
}

void add(const DataRemarks& more, DataRemarks& remarks) {
  remarks.synthetic = remarks.synthetic || more.synthetic;
  remarks.skipped += more.skipped;
  if (remarks.outside == 0) remarks.first_outside = more.first_outside;
  remarks.outside += more.outside;
  remarks.reasons.insert(remarks.reasons.end(), more.reasons.begin(), more.reasons.end());
}

}  // namespace

RunData open_frames(const LoadedConfig& loaded) {
  const FrameFileOptions& data = options_of(loaded.config).data;
  if (data.frames.empty()) {
    throw ConfigError(
        location_of(loaded, "train.model") +
        "data.frames is not set; train.model = \"diffusion_planner\" needs it: a folder of .npz "
        "frames, or a JSON list of their paths");
  }
  RunData opened;
  opened.all = opened.split.training = frames_of(loaded, "data.frames", data.frames);
  if (!data.held_out.empty()) {
    std::error_code none;
    if (std::filesystem::equivalent(data.held_out, data.frames, none)) {
      throw ConfigError(
          fmt::format("{}data.held_out = {} names the frames that data.frames does, and is to be of others; "
                      "hold some out, or leave data.held_out out",
                      location_of(loaded, "data.held_out"), data.held_out));
    }
    opened.split.held_out = frames_of(loaded, "data.held_out", data.held_out);
  }
  opened.remarks = opened.all->remarks();
  if (opened.split.held_out) add(opened.split.held_out->remarks(), opened.remarks);
  return opened;
}

FrameOptions frame_options_of(const RunConfig& config) {
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  return {.layout = layout_of(options_of(config).model),
          .sizes = sizes_of(options_of(config).model),
          .skip_corrupt = config.data.on_corrupt == OnCorrupt::skip,
          .threads = static_cast<int>(config.train.threads.value_or(cores))};
}

std::optional<DataDraft> draft_of_frames(const std::filesystem::path& data) {
  namespace fs = std::filesystem;
  std::error_code error;
  bool is_ours = data.extension() == ".json";
  for (fs::directory_iterator it(data, error), end; !is_ours && !error && it != end; it.increment(error))
    is_ours = it->path().extension() == ".npz";
  if (!is_ours) return std::nullopt;
  std::string problems;
  using enum models::DiffusionPlannerPreset;
  for (const models::DiffusionPlannerPreset preset : {up, m, h}) {
    const std::string name = "preset " + policies::text_of(preset);
    RunConfig config;
    options_of(config).model.preset = preset;
    try {
      const FrameSource source(data, frame_options_of(config));
      DataDraft draft;
      draft.found = source.description() + fmt::format(", of the sizes of {}", name);
      const fs::path whole = (data / "").lexically_normal().parent_path();
      draft.name = (fs::is_directory(data, error) ? whole : data.stem()).filename().string();
      draft.samples = source.size();
      draft.data = fmt::format(
          "# {}\nframes = {}\n# held_out = \"held_out.json\"  # frames to validate with, of "
          "other drives\n",
          draft.found, toml_text(data.string()));
      draft.models = {{name, fmt::format("[diffusion_planner]\npreset = {}\n", toml_text(preset))}};
      draft.rest =
          "[optimizer]\nlr = 1e-4\nweight_decay = 0.01\nclip = 5.0\n\n[policies.ema]\ndecay = 0.999\n";
      return draft;
    } catch (const DataError& problem) {
      problems += fmt::format("\n  {}: {}", name, problem.what());
    }
  }
  throw DataError(data.string() +
                  ": frames of no preset's sizes; name yours as in "
                  "configs/diffusion_planner_quickstart.toml:" +
                  problems);
}

RunData planned_frames(const RunConfig& config, int64_t samples) {
  const auto frames = [&](int64_t count) {
    return std::make_shared<PlannedFrames>(options_of(config).model, count);
  };
  const int64_t shown = std::max(config.data.batch, options_of(config).sample.frames);
  // Two batches of a validation: in the second there are the scores of the first.
  const int64_t validated = std::max(2 * config.data.batch, shown);
  if (!options_of(config).data.held_out.empty())
    return {frames(samples), {frames(samples), frames(validated)}};
  const auto trained = frames(std::max(samples, shown));
  return {trained, {trained, nullptr}};
}

}  // namespace dtk::diffusion_planner
