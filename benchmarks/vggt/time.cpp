// A VGGT that infers, or trains, whenever a line "step" comes in, for benchmarks/vggt/time.py, which runs it and
// an eager PyTorch program in turns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cxxopts.hpp>
#include <sstream>

#include "support/bench_setup.h"
#include "support/step_reference.h"
#include "support/step_server.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/vggt/scenes.h"
#include "toolkit/families/vggt/trainable.h"
#include "toolkit/report/log.h"
#include "toolkit/train/apply_policies.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;

at::Generator drawn(uint64_t seed) {
  return policies::make_generator(at::kCPU, seed);
}

/// The same scene again and again.
class OneScene final : public DataSource {
 public:
  OneScene(const RunConfig& config, const vggt::TrainableVggt& model)
      : planned_(family_of(config).planned_data(config, 64).all), batch_(model.made_up_batch(1, drawn(3))) {}
  const Batch& batch() const { return batch_; }
  int64_t size() const override { return planned_->size(); }
  std::string description() const override { return "one scene"; }
  Batch allocate(int64_t count, bool pinned) const override { return planned_->allocate(count, pinned); }
  void read(int64_t, uint64_t, const Batch& batch, int64_t row) const override {
    for (size_t i = 0; i < batch.tensors.size(); ++i)
      batch.tensors[i].select(0, row).copy_(batch_.tensors[i].select(0, 0));
  }

 private:
  const std::shared_ptr<const DataSource> planned_;
  const Batch batch_;
};

void write_reference(const std::string& path, const vggt::TrainableVggt& model, const Batch& batch) {
  std::vector<NamedTensor> tensors{{"reference.pictures", batch.tensors[vggt::kPictures].clone()},
                                   {"reference.true_poses", batch.tensors[vggt::kPoses].clone()},
                                   {"reference.true_depths", batch.tensors[vggt::kDepths].clone()}};
  {
    const at::NoGradGuard no_grad;
    const models::VggtOutputs found = model.model().forward(batch.tensors[vggt::kPictures]);
    tensors.push_back({"reference.poses", found.poses});
    tensors.push_back({"reference.depths", found.depths});
    tensors.push_back({"reference.depth_confidence", found.depth_confidence});
  }
  const at::Tensor loss = model.loss(batch, drawn(4), /*training=*/true);
  torch::autograd::backward({loss}, {});
  tensors.push_back({"reference.loss", loss.detach().reshape({1})});
  bench::add_weights_and_gradients(model.parameters(), tensors);
  bench::write_reference_file(path, tensors);
}

void run(const cxxopts::ParseResult& parsed) {
  std::vector<std::string> set;
  std::istringstream lines(parsed["set"].as<std::string>());
  for (std::string line; std::getline(lines, line);) set.push_back(line);
  const LoadedConfig loaded = load_config(posix_file_system(), parsed["config"].as<std::string>(), set);
  RunConfig config = loaded.config;
  config.train.threads = at::get_num_threads();
  const policies::SavedTensorEngineGuard engine;
  vggt::TrainableVggt model(config, at::kCPU, drawn(1));
  const auto data = std::make_shared<OneScene>(config, model);
  if (const auto path = parsed["reference"].as<std::string>(); !path.empty())
    return write_reference(path, model, data->batch());
  if (parsed["mode"].as<std::string>() == "infer") {
    policies::PolicySet set_of_policies = put_policies_in(config.policies, model, /*training=*/false);
    const auto scope = set_of_policies.forward_scope();
    const at::Tensor pictures = data->batch().tensors[vggt::kPictures];
    return bench::serve([&] { model.model().forward(pictures); }, at::kCPU, {});
  }
  SteadyClock clock;
  Trainer trainer(config, at::kCPU, data, clock);
  bench::serve([&] { trainer.step(is_log_step(trainer.steps() + 1, TrainOptions().log_every)); }, at::kCPU, {});
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("vggt-time", "Infers, or makes a training step, for each line \"step\" of its input");
  options.add_options()("config", "configuration", cxxopts::value<std::string>())(
      "set", "KEY=VALUE, one a line", cxxopts::value<std::string>()->default_value(""))(
      "mode", "infer or train", cxxopts::value<std::string>()->default_value("infer"))(
      "reference", "only writes weights, pictures, results, loss and gradients there",
      cxxopts::value<std::string>()->default_value(""));
  return dtk::bench::main_of("vggt-time", options, argc, argv,
                             [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
