// One trainer of the driving model that makes a step whenever a line "step" comes in, for
// benchmarks/diffusion_planner/step.py, which runs it and the original in turns.
#include <ATen/ATen.h>
#include <dtk/models/diffusion_planner.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cxxopts.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/bench_setup.h"
#include "support/step_reference.h"
#include "support/step_server.h"
#include "toolkit/families/diffusion_planner/frames.h"
#include "toolkit/families/diffusion_planner/objective.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/train/dropout_masks.h"
#include "toolkit/train/optimizer.h"

namespace {

using namespace dtk;
using namespace dtk::diffusion_planner;
using policies::Category;
using policies::OwnerScope;
using policies::PhaseScope;

models::DiffusionPlanner built(const models::DiffusionPlannerOptions& options) {
  const OwnerScope owner(Category::parameters, "model");
  models::DiffusionPlanner model(options, at::kCPU, policies::make_generator(at::kCPU, 1));
  bench::fill_zeros(model.parameters(), policies::make_generator(at::kCPU, 2));
  for (const auto& [name, parameter] : model.parameters())
    policies::claim_gradient_when_written(parameter, name);
  return model;
}

// Of the policies, fused attention alone.
policies::PolicySet put_in(models::DiffusionPlanner& model) {
  policies::PolicyOptions options = policies::PolicyOptions::all_off();
  options.attention = {};
  policies::Seam seam;
  policies::PolicySet set(options, {at::kCPU, model.parameters(), model.paths()}, seam);
  model.seam.run = std::move(seam.run);
  model.seam.keep = std::move(seam.keep);
  model.seam.attention = std::move(seam.attention);
  return set;
}

std::vector<FrameBatch> read_batches(const std::string& path, const models::DiffusionPlannerOptions& model,
                                     int64_t batch) {
  const OwnerScope owner(Category::data, "frames");
  const Frames frames(path, {.layout = layout_of(model), .sizes = sizes_of(model)});
  std::vector<FrameBatch> batches;
  for (int64_t first = 0; first + batch <= frames.size(); first += batch) {
    batches.push_back(frames.allocate(batch));
    for (int64_t i = 0; i < batch; ++i) frames.read(first + i, batches.back(), i);
  }
  if (batches.empty()) {
    throw std::invalid_argument("--frames " + path + ": " + frames.description() +
                                " are less than one batch; draw more, or lower --batch");
  }
  return batches;
}

// The original's: it divides headings by 1e-6 at least, which the comparison of gradients sees.
TrajectoryObjectiveOptions objective_options(const models::DiffusionPlannerOptions& model, bool augmented) {
  TrajectoryObjectiveOptions options;
  options.scales = published_scales(sizes_of(model).lane_features);
  options.loss.exploding_heading_gradient = true;
  if (augmented) options.augmentation.emplace();
  return options;
}

OptimizerOptions optimizer_options() {
  OptimizerOptions options;
  options.weight_decay = 0.01;
  options.clip = 5;
  return options;
}

class Training {
 public:
  Training(const models::DiffusionPlannerOptions& model, std::vector<FrameBatch> batches, bool augmented)
      : model_(built(model)),
        optimizer_(optimizer_options(), model_.parameters()),
        policies_(put_in(model_)),
        objective_(model_.options(), objective_options(model_.options(), augmented), at::kCPU),
        noise_(policies::make_generator(at::kCPU, 3)),
        ledger_(policies::saved_tensor_ledger()),
        batches_(std::move(batches)) {}

  void step() {
    {
      const DropoutMaskScope masks;
      const PhaseScope phase("forward");
      at::Tensor loss = forward();
      const PhaseScope backward("backward");
      torch::autograd::backward({std::exchange(loss, {})}, {});
    }
    const PhaseScope phase("optimizer");
    policies_.before_step();
    optimizer_.step(1e-4);
    optimizer_.release_gradients();
    policies_.after_step();
    policies::cpu_accounts().disown_temporaries();
    ++steps_;
  }

  // All weights and frames, and the loss of the first frames without dropout and augmentation, its draws and
  // its gradients.
  void write_reference(const std::string& path) {
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < batches_.size(); ++i) {
      FrameBatch::fields(batches_[i], [&](const char* key, const at::Tensor& tensor) {
        tensors.push_back({"frames." + std::to_string(i) + "." + key, tensor});
      });
    }
    const TrajectoryObjective::Draws draws = objective_.draw(batches_[0], noise_, /*training=*/false);
    const at::Tensor loss =
        objective_.losses(model_, batches_[0], draws, /*training=*/false).total(objective_.options().loss);
    torch::autograd::backward({loss}, {});
    tensors.push_back({"reference.uniform", draws.noise.uniform});
    tensors.push_back({"reference.z", draws.noise.z});
    tensors.push_back({"reference.delay", draws.noise.delay});
    tensors.push_back({"reference.shorter", draws.noise.shorter});
    tensors.push_back({"reference.loss", loss.detach()});
    bench::add_weights_and_gradients(model_.parameters(), tensors);
    bench::write_reference_file(path, tensors);
  }

 private:
  at::Tensor forward() {
    const policies::SavedTensorScope ledger(ledger_);
    const policies::ModulePathScope path("loss");
    const auto scope = policies_.forward_scope();
    return objective_.loss(model_, batches_[steps_ % batches_.size()], noise_, /*training=*/true);
  }

  models::DiffusionPlanner model_;
  AdamW optimizer_;
  policies::PolicySet policies_;
  const TrajectoryObjective objective_;
  const at::Generator noise_;
  const std::shared_ptr<policies::SavedTensorLayer> ledger_;
  const std::vector<FrameBatch> batches_;
  size_t steps_ = 0;
};

void run(const cxxopts::ParseResult& parsed) {
  if (parsed.count("frames") == 0)
    throw std::invalid_argument("--frames is missing: a folder or a JSON list");
  models::DiffusionPlannerOptions model;
  const auto batch = parsed["batch"].as<int64_t>();
  if (batch < 1) throw std::invalid_argument("--batch: from 1");
  const policies::SavedTensorEngineGuard engine;
  MemoryMeters meters({}, at::kCPU);
  Training training(model, read_batches(parsed["frames"].as<std::string>(), model, batch),
                    parsed["augmentation"].as<bool>());
  if (const auto path = parsed["reference"].as<std::string>(); !path.empty()) training.write_reference(path);
  policies::cpu_accounts().reset_phases("first_step");  // the peak is the steps', not the reference's
  bench::serve([&] { training.step(); }, at::kCPU,
               {{"peak", [&] { return static_cast<double>(meters.report()->peak().peak.bytes); }}});
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("diffusion-planner-step",
                           "Trains preset H, a step for each line \"step\" of its input; for step.py");
  options.add_options()("frames", "folder or JSON list of frames", cxxopts::value<std::string>())(
      "batch", "frames of a step", cxxopts::value<int64_t>()->default_value("2"))(
      "augmentation", "of each step's frames", cxxopts::value<bool>()->default_value("false"))(
      "reference", "file to write weights, frames and one loss to",
      cxxopts::value<std::string>()->default_value(""));
  return bench::main_of("diffusion-planner-step", options, argc, argv,
                        [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
