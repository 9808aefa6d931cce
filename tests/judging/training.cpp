#include "training.h"

#include <ATen/ATen.h>

#include <string>

#include "toolkit/data/loader.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/train/lr_schedule.h"
#include "toolkit/train/optimizer.h"

namespace dtk::judging {
namespace {

constexpr uint64_t seed = 1;
constexpr int64_t epochs = 5;
constexpr int64_t batch = 128;

RunConfig recipe(int64_t steps) {
  RunConfig config;
  config.train.steps = steps;
  config.optimizer.lr = 4e-3;
  config.optimizer.weight_decay = 1e-2;
  config.schedule.warmup = 100;
  return config;
}

}  // namespace

JudgeNet train_judge(const std::shared_ptr<const DataSource>& source, const EpochReport& report) {
  JudgeNet net(seed);
  Loader loader(source, {.seed = seed, .batch = batch});
  const int64_t steps_per_epoch = loader.samples_per_epoch() / batch;
  const int64_t steps = epochs * steps_per_epoch;
  const RunConfig config = recipe(steps);
  AdamW adamw(config.optimizer, net.parameters());
  double loss_sum = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const Batch samples = loader.next();
    const JudgeOutput output = net.forward(samples.tensors[0], /*training=*/true);
    const at::Tensor loss = at::cross_entropy_loss(output.logits, samples.tensors[1]);
    loss.backward();
    adamw.step(learning_rate(config, {.step = step}));
    adamw.release_gradients();
    loss_sum += loss.item<double>();
    if ((step + 1) % steps_per_epoch != 0) continue;
    report((step + 1) / steps_per_epoch, epochs, loss_sum / static_cast<double>(steps_per_epoch));
    loss_sum = 0;
  }
  return net;
}

void save_judge(FileSystem& files, const std::filesystem::path& path, const JudgeNet& net,
                const TrainingFacts& facts) {
  const std::filesystem::path partial = path.string() + ".tmp";
  const auto file = files.create(partial);
  write_safetensors(*file, net.state(),
                    {{"accuracy", std::to_string(facts.accuracy)},
                     {"training_seconds", std::to_string(facts.seconds)},
                     {"trained_on", "Fashion-MNIST, 60000 training images"}});
  file->sync();
  file->close();
  files.rename(partial, path);
}

JudgeNet load_judge(FileSystem& files, const std::filesystem::path& path) {
  JudgeNet net(seed);
  copy_by_name(open_safetensors(files, path), net.state(), path.string());
  return net;
}

}  // namespace dtk::judging
