// One trainer of a LLaVA that makes a step whenever a line "step" comes in, for benchmarks/llava/step.py,
// which runs it and transformers in turns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cxxopts.hpp>
#include <numeric>
#include <sstream>

#include "support/bench_setup.h"
#include "support/step_reference.h"
#include "support/step_server.h"
#include "toolkit/checkpoint/weights.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/llava/dialogue_source.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/report/log.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;

/// Samples of one length: a word, a picture, and random words, of which the second half is an answer.
class DrawnDialogues final : public DataSource {
 public:
  explicit DrawnDialogues(const RunConfig& config) : options_(llava::options_of(config)) {}
  int64_t size() const override { return 64; }
  std::string description() const override { return "64 drawn dialogues"; }
  bool is_weighted() const override { return true; }
  int64_t weight(int64_t index) const override { return drawn(index).size().labels; }
  std::optional<int64_t> length(int64_t) const override { return options_.data.max_length; }
  Batch allocate(int64_t count, bool) const override {
    const std::vector<llava::SampleSize> sizes(static_cast<size_t>(count), drawn(0).size());
    return llava::allocate_batch(sizes, options_.data.max_length, options_.model.image_tokens(),
                                 *options_.model.vision.image, at::kFloat);
  }
  void read(int64_t index, uint64_t, const Batch& batch, int64_t row) const override {
    const auto& layout = dynamic_cast<const llava::Layout&>(*batch.layout);
    llava::write_sample(drawn(index), layout.place(batch, row), [&](int64_t, const at::Tensor& into) {
      into.normal_(0, 1, policies::make_generator(at::kCPU, static_cast<uint64_t>(index)));
    });
  }

 private:
  llava::Spread drawn(int64_t index) const {
    const int64_t length = options_.data.max_length, tokens = options_.model.image_tokens();
    const at::Tensor words =
        at::randint(3, *options_.model.text.vocabulary, {length},
                    policies::make_generator(at::kCPU, static_cast<uint64_t>(index)), at::kLong);
    llava::Spread spread;
    spread.pictures = 1;
    spread.ids.assign(words.const_data_ptr<int64_t>(), words.const_data_ptr<int64_t>() + length);
    std::fill_n(spread.ids.begin() + 1, tokens, 0);
    spread.feature_rows.resize(static_cast<size_t>(tokens));
    std::iota(spread.feature_rows.begin(), spread.feature_rows.end(), 0);
    spread.picture_rows = spread.feature_rows;
    for (int64_t& row : spread.picture_rows) ++row;
    for (int64_t row = (tokens + 1 + length) / 2; row + 1 < length; ++row) {
      spread.label_rows.push_back(row);
      spread.labels.push_back(spread.ids[static_cast<size_t>(row) + 1]);
    }
    return spread;
  }
  const llava::Options options_;
};

void write_weights(const std::string& path, const models::NamedTensors& parameters) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, parameter] : parameters) tensors.push_back({name, parameter.detach()});
  bench::write_reference_file(path, tensors);
}

// A batch, its loss, the norms of its gradients, and what is trained.
void write_reference(const std::string& path, const TrainableModel& trained_one, const DataSource& data,
                     int64_t samples, bool bf16) {
  const std::unique_ptr<TrainableModel> own = trained_one.with_own_seam();
  const auto& model = dynamic_cast<const llava::TrainableLlava&>(*own);
  const policies::AutocastGuard autocast(at::kCPU, bf16, at::kBFloat16);
  Batch batch = read_batch(data, 0, samples, "reference");
  const models::LlavaBatch parts = llava::llava_batch(std::move(batch));
  std::vector<NamedTensor> tensors = {{"reference.ids", parts.ids.clone()},
                                      {"reference.pictures", parts.pictures.clone()},
                                      {"reference.picture_rows", parts.picture_rows.clone()},
                                      {"reference.label_rows", parts.label_rows.clone()},
                                      {"reference.labels", parts.labels.clone()}};
  const at::Tensor loss = model.model().loss(parts, /*training=*/false);
  torch::autograd::backward({loss}, {});
  tensors.push_back({"reference.loss", loss.detach().reshape({1})});
  models::NamedTensors trained;
  for (const auto& one : model.parameters())
    if (one.second.requires_grad()) trained.push_back(one);
  bench::add_weights_and_gradients(trained, tensors);
  bench::write_reference_file(path, tensors);
}

void run(const cxxopts::ParseResult& parsed) {
  FileSystem& files = posix_file_system();
  std::vector<std::string> set;
  std::istringstream lines(parsed["set"].as<std::string>());
  for (std::string line; std::getline(lines, line);) set.push_back(line);
  const LoadedConfig loaded = load_config(files, parsed["config"].as<std::string>(), set);
  RunConfig config = loaded.config;
  config.train.threads = at::get_num_threads();
  const auto weights = parsed["weights"].as<std::string>();
  if (parsed["draw"].as<bool>()) {
    const auto model = make_model(config, at::kCPU, policies::make_generator(at::kCPU, 1));
    return write_weights(weights, model->parameters());
  }
  const policies::SavedTensorEngineGuard engine;
  MemoryMeters meters(config.memory, at::kCPU);
  SteadyClock clock;
  const auto data = std::make_shared<DrawnDialogues>(config);
  Trainer trainer(config, at::kCPU, data, clock, [&](const TrainableModel& model, const policies::Shards&) {
    load_weights(open_weights(files, {weights, "", "--weights", "", ""}), model);
    bench::fill_zeros(model.parameters(), policies::make_generator(at::kCPU, 2));
  });
  if (const auto path = parsed["reference"].as<std::string>(); !path.empty())
    write_reference(path, trainer.model(), *data, config.data.batch,
                    config.policies.precision.enabled == policies::Enabled::on);
  const auto step = [&] {
    trainer.step(/*measured=*/is_log_step(trainer.steps() + 1, TrainOptions().log_every));
  };
  bench::serve(step, at::kCPU,
               {{"peak", [&] { return static_cast<double>(meters.report()->peak().peak.bytes); }}});
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("llava-step", "Makes a training step for each line \"step\" of its input");
  options.add_options()("config", "configuration", cxxopts::value<std::string>())(
      "set", "KEY=VALUE, one a line", cxxopts::value<std::string>()->default_value(""))(
      "weights", "that both sides begin with", cxxopts::value<std::string>())(
      "draw", "only writes them", cxxopts::value<bool>()->default_value("false"))(
      "reference", "file for one batch, its loss and gradients",
      cxxopts::value<std::string>()->default_value(""));
  return dtk::bench::main_of("llava-step", options, argc, argv,
                             [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
