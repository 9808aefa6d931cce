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

namespace dtk {
namespace {

models::DiffusionPlanner with_empty_seam(models::DiffusionPlanner planner) {
  planner.seam = models::Seam();
  return planner;
}

class PlannerSampleScores final : public SampleScores {
 public:
  using Predict = std::function<PlannerObjective::Prediction(const PlannerBatch&)>;
  using OnDevice = std::function<PlannerBatch(Batch)>;

  PlannerSampleScores(const PlannerLossOptions& loss, bool upstream, OnDevice on_device, Predict predict)
      : metrics_(loss), upstream_(upstream), on_device_(std::move(on_device)), predict_(std::move(predict)) {}

  void add(Batch batch) override {
    const at::NoGradGuard no_grad;
    const PlannerBatch frames = on_device_(std::move(batch));
    const PlannerObjective::Prediction drawn = predict_(frames);
    metrics_.add(drawn.trajectories, drawn.logits, planner_outcome(frames));
  }

  std::vector<Score> read_sync() const override {
    const PlannerScores of = metrics_.scores_sync();
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
  PlannerMetrics metrics_;
  const bool upstream_;
  const OnDevice on_device_;
  const Predict predict_;
};

}  // namespace

PlannerObjectiveOptions planner_objective_options(const RunConfig& config) {
  const PlannerTrainingOptions& training = config.planner_training;
  PlannerObjectiveOptions options = planner_objective_of(config.planner);
  options.process = training.process;
  options.loss = training.loss;
  options.augmentation.reset();
  if (training.augmentation.probability > 0 || training.augmentation.smooth)
    options.augmentation = training.augmentation;
  options.solver.steps = config.sample.steps;
  // A rehearsal reads no files, and scales change no size.
  if (!config.data.normalization.empty() && !policies::rehearsing()) {
    options.scales =
        read_planner_normalization(posix_file_system(), config.data.normalization,
                                   planner_layout(config.planner), planner_sizes(config.planner));
  }
  return options;
}

TrainablePlanner::TrainablePlanner(const RunConfig& config, c10::Device device,
                                   std::optional<at::Generator> generator)
    : TrainablePlanner(config, models::DiffusionPlanner(config.planner, device, std::move(generator))) {}

TrainablePlanner::TrainablePlanner(const RunConfig& config, models::DiffusionPlanner planner)
    : config_(config), planner_(std::move(planner)) {
  if (!device().is_meta()) objective_.emplace(config.planner, planner_objective_options(config), device());
}

std::unique_ptr<TrainableModel> TrainablePlanner::with_own_seam() const {
  return std::unique_ptr<TrainableModel>(new TrainablePlanner(config_, with_empty_seam(planner_)));
}

PlannerBatch TrainablePlanner::on_device(Batch batch) const {
  for (at::Tensor& tensor : batch.tensors) {
    if (tensor.defined()) tensor = tensor.to(device(), /*non_blocking=*/true);
  }
  return planner_batch(std::move(batch));
}

at::Tensor TrainablePlanner::loss(Batch batch, const at::Generator& noise, bool training) const {
  return objective_->loss(planner_, on_device(std::move(batch)), noise, training);
}

Batch TrainablePlanner::made_up_batch(int64_t samples, const at::Generator& generator) const {
  const auto arrays = planner_arrays(planner_layout(config_.planner), planner_sizes(config_.planner));
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

std::vector<NamedTensor> TrainablePlanner::sample(const DataSource& data, const GoOn& go_on) const {
  return trajectories(data, std::min(config_.sample.frames, data.size()), go_on);
}

std::vector<NamedTensor> TrainablePlanner::trajectories(const DataSource& data, int64_t all,
                                                        const GoOn& go_on) const {
  const at::NoGradGuard no_grad;
  const int64_t micro_batch = config_.data.batch / config_.train.accumulate;
  const int64_t batches = (all + micro_batch - 1) / micro_batch;
  std::vector<NamedTensor> samples;
  policies::Passes passes("batches of samples", batches);
  while (const auto pass = passes.next()) {
    if (go_on && !go_on(*pass, batches)) return {};
    const int64_t first = *pass * micro_batch, count = std::min(micro_batch, all - first);
    const PlannerBatch frames = on_device(read_batch(data, first, count, "frames to sample"));
    const PlannerObjective::Prediction drawn = objective_->predict(planner_, frames);
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
  for (const NamedTensor& one : samples) policies::zero_if_rehearsing(one.tensor);
  return samples;
}

std::unique_ptr<SampleScores> TrainablePlanner::scores() const {
  return std::make_unique<PlannerSampleScores>(
      config_.planner_training.loss, config_.planner.upstream(),
      [this](Batch batch) { return on_device(std::move(batch)); },
      [this](const PlannerBatch& frames) { return objective_->predict(planner_, frames); });
}

std::map<std::string, std::string> TrainablePlanner::files() const {
  if (!objective_) return {};
  return {{kPlannerScales, planner_normalization_text(objective_->options().scales)}};
}

void TrainablePlanner::check_fit(const Weights& weights) const {
  dtk::check_fit(weights, planner_);
}

}  // namespace dtk
