#include "toolkit/families/diffusion_planner/trainable.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "toolkit/data/data_source.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/layout.h"
#include "toolkit/families/diffusion_planner/normalization.h"
#include "toolkit/families/diffusion_planner/weights.h"
#include "toolkit/io/file_system.h"

namespace dtk::diffusion_planner {
namespace {

models::DiffusionPlanner with_empty_seam(models::DiffusionPlanner model) {
  model.seam = models::Seam();
  return model;
}

class TrajectoryScores final : public SampleScores {
 public:
  using Predict = std::function<TrajectoryObjective::Prediction(const FrameBatch&)>;
  using OnDevice = std::function<FrameBatch(Batch)>;

  TrajectoryScores(const LossOptions& loss, bool upstream, OnDevice on_device, Predict predict)
      : metrics_(loss), upstream_(upstream), on_device_(std::move(on_device)), predict_(std::move(predict)) {}

  void add(Batch batch) override {
    const at::NoGradGuard no_grad;
    const FrameBatch frames = on_device_(std::move(batch));
    const TrajectoryObjective::Prediction drawn = predict_(frames);
    metrics_.add(drawn.trajectories, drawn.logits, outcome_of(frames));
  }

  std::vector<Score> read_sync() const override {
    const PathScores of = metrics_.scores_sync();
    std::vector<Score> scores = {{"ego_lateral", of.ego_lateral},
                                 {"ego_longitudinal", of.ego_longitudinal},
                                 {"ego_simple_l2", of.ego_simple_l2},
                                 {"ego_position_l2", of.ego_position_l2},
                                 {"ego_heading_l2", of.ego_heading_l2},
                                 {"ego_cosine_similarity", of.ego_cosine_similarity},
                                 {"neighbor", of.neighbor}};
    if (upstream_) return scores;
    scores.insert(scores.end(), {{"ego_road_border", of.ego_road_border},
                                 {"ego_neighbor_margin", of.ego_neighbor_margin},
                                 {"turn_accuracy", of.turn_accuracy}});
    if (of.turn_changes > 0) scores.push_back({"turn_change_accuracy", of.turn_change_accuracy});
    return scores;
  }

 private:
  PathMetrics metrics_;
  const bool upstream_;
  const OnDevice on_device_;
  const Predict predict_;
};

}  // namespace

TrajectoryObjectiveOptions objective_options_for(const RunConfig& config) {
  const Options& training = options_of(config);
  TrajectoryObjectiveOptions options = objective_options_of(options_of(config).model);
  options.process = training.process;
  options.loss = training.loss;
  options.augmentation.reset();
  if (training.augmentation.probability > 0 || training.augmentation.smooth)
    options.augmentation = training.augmentation;
  options.solver.steps = config.sample.steps;
  // A simulation reads no files, and scales change no size.
  if (!options_of(config).data.normalization.empty() && !policies::simulating()) {
    options.scales =
        read_normalization(posix_file_system(), options_of(config).data.normalization,
                           layout_of(options_of(config).model), sizes_of(options_of(config).model));
  }
  return options;
}

TrainableDiffusionPlanner::TrainableDiffusionPlanner(const RunConfig& config, c10::Device device,
                                                     std::optional<at::Generator> generator)
    : TrainableDiffusionPlanner(
          config, models::DiffusionPlanner(options_of(config).model, device, std::move(generator))) {}

TrainableDiffusionPlanner::TrainableDiffusionPlanner(const RunConfig& config, models::DiffusionPlanner model)
    : config_(config), model_(std::move(model)) {
  if (!device().is_meta())
    objective_.emplace(options_of(config).model, objective_options_for(config), device());
}

std::unique_ptr<TrainableModel> TrainableDiffusionPlanner::with_own_seam() const {
  return std::unique_ptr<TrainableModel>(new TrainableDiffusionPlanner(config_, with_empty_seam(model_)));
}

FrameBatch TrainableDiffusionPlanner::on_device(Batch batch) const {
  for (at::Tensor& tensor : batch.tensors) {
    if (tensor.defined()) tensor = tensor.to(device(), /*non_blocking=*/true);
  }
  return frame_batch(std::move(batch));
}

at::Tensor TrainableDiffusionPlanner::loss(Batch batch, const at::Generator& noise, bool training) const {
  return objective_->loss(model_, on_device(std::move(batch)), noise, training);
}

Batch TrainableDiffusionPlanner::made_up_batch(int64_t samples, const at::Generator& generator) const {
  const auto arrays = frame_arrays(layout_of(options_of(config_).model), sizes_of(options_of(config_).model));
  Batch batch = batch_of(allocate_frames(arrays, samples, device()));
  for (at::Tensor& tensor : batch.tensors) {
    if (!tensor.defined()) continue;
    if (tensor.is_floating_point()) {
      tensor.normal_(0, 1, generator);
    } else {
      tensor.zero_();
    }
  }
  return batch;
}

std::vector<NamedTensor> TrainableDiffusionPlanner::sample(const DataSource& data,
                                                           const KeepGoing& keep_going) const {
  return trajectories(data, std::min(options_of(config_).sample.frames, data.size()), keep_going);
}

std::vector<NamedTensor> TrainableDiffusionPlanner::trajectories(const DataSource& data, int64_t all,
                                                                 const KeepGoing& keep_going) const {
  const at::NoGradGuard no_grad;
  const int64_t micro_batch = config_.data.batch / config_.train.accumulate;
  const int64_t batches = (all + micro_batch - 1) / micro_batch;
  std::vector<NamedTensor> samples;
  policies::FoldableLoop passes("batches of samples", batches);
  while (const auto pass = passes.next()) {
    if (keep_going && !keep_going(*pass, batches)) return {};
    const int64_t first = *pass * micro_batch, count = std::min(micro_batch, all - first);
    const FrameBatch frames = on_device(read_batch(data, first, count, "frames to sample"));
    const TrajectoryObjective::Prediction drawn = objective_->predict(model_, frames);
    const auto keep = [&](const char* name, const at::Tensor& part) {
      if (!part.defined()) return;
      auto kept = std::find_if(samples.begin(), samples.end(), [&](const auto& s) { return s.name == name; });
      if (kept == samples.end()) {
        std::vector<int64_t> shape = part.sizes().vec();
        shape.front() = all;
        samples.push_back({name, at::empty(shape, at::kFloat)});
        kept = samples.end() - 1;
      }
      const policies::HostCopyScope copy;
      kept->tensor.narrow(0, first, count).copy_(part);
    };
    keep("trajectories", drawn.trajectories);
    keep("ego_future", with_cos_sin(frames.ego_agent_future));
    keep("turn_indicator", drawn.logits);
  }
  for (const NamedTensor& one : samples) policies::zero_if_simulating(one.tensor);
  return samples;
}

std::unique_ptr<SampleScores> TrainableDiffusionPlanner::scores() const {
  return std::make_unique<TrajectoryScores>(
      options_of(config_).loss, options_of(config_).model.upstream(),
      [this](Batch batch) { return on_device(std::move(batch)); },
      [this](const FrameBatch& frames) { return objective_->predict(model_, frames); });
}

std::map<std::string, std::string> TrainableDiffusionPlanner::files() const {
  if (!objective_) return {};
  return {{kScalesFile, normalization_text(objective_->options().scales)}};
}

void TrainableDiffusionPlanner::check_fit(const Weights& weights) const {
  dtk::check_fit(weights, model_);
}

}  // namespace dtk::diffusion_planner
