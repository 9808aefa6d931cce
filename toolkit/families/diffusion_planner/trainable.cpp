#include "toolkit/families/diffusion_planner/trainable.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <utility>

#include "toolkit/data/data_source.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/layout.h"
#include "toolkit/families/diffusion_planner/normalization.h"
#include "toolkit/io/file_system.h"

namespace dtk::diffusion_planner {
namespace {

FrameBatch frames_on(c10::Device device, Batch batch) {
  for (at::Tensor& tensor : batch.tensors) {
    if (tensor.defined()) tensor = tensor.to(device, /*non_blocking=*/true);
  }
  return frame_batch(std::move(batch));
}

class TrajectoryScores final : public SampleScores {
 public:
  TrajectoryScores(const TrajectoryObjective& objective, const models::DiffusionPlanner& model)
      : objective_(objective), model_(model) {}

  int64_t size() const override { return kPathSums; }

  at::Tensor sums(Batch batch) const override {
    const at::NoGradGuard no_grad;
    const c10::Device device = model_.parameters().front().second.device();
    const FrameBatch frames = frames_on(device, std::move(batch));
    const TrajectoryObjective::Prediction drawn = objective_.predict(model_, frames);
    return path_sums(drawn.trajectories, drawn.logits, outcome_of(frames), objective_.options().loss);
  }

  std::vector<Score> read(const std::vector<double>& sums) const override {
    const PathScores of = path_scores(sums);
    std::vector<Score> scores = {{"ego_lateral", of.ego_lateral},
                                 {"ego_longitudinal", of.ego_longitudinal},
                                 {"ego_simple_l2", of.ego_simple_l2},
                                 {"ego_position_l2", of.ego_position_l2},
                                 {"ego_heading_l2", of.ego_heading_l2},
                                 {"ego_cosine_similarity", of.ego_cosine_similarity},
                                 {"neighbor", of.neighbor}};
    if (model_.options().upstream()) return scores;
    scores.insert(scores.end(), {{"ego_road_border", of.ego_road_border},
                                 {"ego_neighbor_margin", of.ego_neighbor_margin},
                                 {"turn_accuracy", of.turn_accuracy}});
    if (of.turn_changes > 0) scores.push_back({"turn_change_accuracy", of.turn_change_accuracy});
    return scores;
  }

 private:
  const TrajectoryObjective& objective_;
  const models::DiffusionPlanner& model_;
};

// What [diffusion_planner], its sub-tables, sample.steps and data.normalization say. Throws DataError for a
// file of scales that cannot be used.
TrajectoryObjectiveOptions objective_options(const RunConfig& config) {
  const auto& [model, process, loss, augmentation, data, sample] = options_of(config);
  TrajectoryObjectiveOptions options;
  options.process = process;
  options.loss = loss;
  if (augmentation.probability > 0 || augmentation.smooth) options.augmentation = augmentation;
  options.solver.steps = config.sample.steps;
  // A simulation reads no files, and scales change no size.
  options.scales =
      data.normalization.empty() || policies::simulating()
          ? published_scales(sizes_of(model).lane_features)
          : read_normalization(posix_file_system(), data.normalization, layout_of(model), sizes_of(model));
  return options;
}

}  // namespace

TrainableDiffusionPlanner::TrainableDiffusionPlanner(const RunConfig& config, c10::Device device,
                                                     std::optional<at::Generator> generator,
                                                     const models::ParameterMade& made)
    : TrainableDiffusionPlanner(
          config, models::DiffusionPlanner(options_of(config).model, device, std::move(generator), made)) {}

TrainableDiffusionPlanner::TrainableDiffusionPlanner(const RunConfig& config, models::DiffusionPlanner model)
    : config_(config), model_(std::move(model)) {
  if (!device().is_meta()) objective_.emplace(options_of(config).model, objective_options(config), device());
}

std::unique_ptr<TrainableModel> TrainableDiffusionPlanner::with_own_seam() const {
  std::unique_ptr<TrainableDiffusionPlanner> same(new TrainableDiffusionPlanner(config_, model_));
  same->model_.seam = {};
  return same;
}

at::Tensor TrainableDiffusionPlanner::loss(Batch batch, const at::Generator& noise, bool training) const {
  return objective_->loss(model_, frames_on(device(), std::move(batch)), noise, training);
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
                                                           const KeepGoing& keep_going,
                                                           const SharedSamples& shared) const {
  return trajectories(data, std::min(options_of(config_).sample.frames, data.size()), keep_going, shared);
}

std::vector<NamedTensor> TrainableDiffusionPlanner::trajectories(const DataSource& data, int64_t all,
                                                                 const KeepGoing& keep_going,
                                                                 const SharedSamples& shared) const {
  const at::NoGradGuard no_grad;
  const int64_t micro_batch = samples_of_micro_batch(config_);
  const int64_t batches = (all + micro_batch - 1) / micro_batch, rounds = shared.share.rounds(batches);
  std::vector<NamedTensor> samples;
  policies::FoldableLoop passes("batches of samples", rounds);
  while (const auto pass = passes.next()) {
    if (keep_going && !keep_going(*pass, rounds)) return {};
    const RankShare::Turn turn = shared.share.turn(*pass, batches);
    const int64_t first = turn.batch * micro_batch, count = std::min(micro_batch, all - first);
    const FrameBatch frames = frames_on(device(), read_batch(data, first, count, "frames to sample"));
    const TrajectoryObjective::Prediction drawn = objective_->predict(model_, frames);
    const auto keep = [&](const char* name, const at::Tensor& part) {
      if (!part.defined()) return;
      auto kept = std::find_if(samples.begin(), samples.end(), [&](const auto& s) { return s.name == name; });
      if (kept == samples.end()) {
        std::vector<int64_t> shape = part.sizes().vec();
        shape.front() = all;
        samples.push_back({name, shared.join ? at::zeros(shape, at::kFloat) : at::empty(shape, at::kFloat)});
        kept = samples.end() - 1;
      }
      const policies::HostCopyScope copy;
      if (turn.is_own) kept->tensor.narrow(0, first, count).copy_(part);
    };
    keep("trajectories", drawn.trajectories);
    keep("ego_future", with_cos_sin(frames.ego_agent_future));
    keep("turn_indicator", drawn.logits);
  }
  for (const NamedTensor& one : samples) {
    policies::zero_if_simulating(one.tensor);
    if (shared.join) shared.join(one.tensor);
  }
  return samples;
}

std::unique_ptr<SampleScores> TrainableDiffusionPlanner::scores() const {
  return std::make_unique<TrajectoryScores>(*objective_, model_);
}

std::map<std::string, std::string> TrainableDiffusionPlanner::files() const {
  if (!objective_) return {};
  return {{kScalesFile, normalization_text(objective_->options().scales)}};
}

}  // namespace dtk::diffusion_planner
