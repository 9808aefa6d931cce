#include "trainable.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <utility>

#include "recording.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/random_streams.h"

namespace springs {

using dtk::Batch;
using dtk::NamedTensor;
namespace policies = dtk::policies;

TrainableSprings::TrainableSprings(const dtk::RunConfig& config, c10::Device device,
                                   std::optional<at::Generator> generator)
    : TrainableSprings(config, Network(table_of(config), device, std::move(generator))) {}

TrainableSprings::TrainableSprings(const dtk::RunConfig& config, Network network)
    : config_(config), table_(table_of(config_)), network_(std::move(network)) {}

std::unique_ptr<dtk::TrainableModel> TrainableSprings::with_own_seam() const {
  Network network = network_;
  network.seam = models::Seam();
  return std::unique_ptr<TrainableModel>(new TrainableSprings(config_, std::move(network)));
}

Batch TrainableSprings::on_device(Batch batch) const {
  for (at::Tensor& tensor : batch.tensors) tensor = tensor.to(device(), /*non_blocking=*/true);
  return batch;
}

// Takes the two inputs, so that they end with the module that reads them.
at::Tensor TrainableSprings::predicted(Batch& batch) const {
  return network_.forward(std::move(batch.tensors[0]), std::move(batch.tensors[1]));
}

at::Tensor TrainableSprings::loss(Batch batch, const at::Generator& noise, bool training) const {
  batch = on_device(std::move(batch));
  at::Tensor& start = batch.tensors[0];
  if (training && table_.jitter > 0)
    start = start + table_.jitter * at::randn(start.sizes(), noise, start.options());
  at::Tensor error = predicted(batch);
  error = at::smooth_l1_loss(error, batch.tensors[2], at::Reduction::None, table_.delta);
  const at::Tensor weight = at::linspace(1, table_.late_weight, table_.steps, error.options());
  error = error.mean(2);
  error = error * weight;
  return error.mean();
}

Batch TrainableSprings::made_up_batch(int64_t samples, const at::Generator& generator) const {
  Batch batch = allocate_samples(samples, table_.steps, device());
  for (at::Tensor& tensor : batch.tensors) tensor.normal_(0, 1, generator);
  return batch;
}

std::vector<NamedTensor> TrainableSprings::sample(const dtk::DataSource& data,
                                                  const dtk::KeepGoing& keep_going,
                                                  const dtk::SharedSamples& shared) const {
  return futures(data, std::min(table_.drawn, data.size()), keep_going, shared);
}

std::vector<NamedTensor> TrainableSprings::futures(const dtk::DataSource& data, int64_t count,
                                                   const dtk::KeepGoing& keep_going,
                                                   const dtk::SharedSamples& shared) const {
  const at::NoGradGuard no_grad;
  const int64_t at_once = config_.data.batch / config_.train.accumulate;
  const int64_t batches = (count + at_once - 1) / at_once, rounds = shared.share.rounds(batches);
  const auto seed = dtk::stream_seed(table_.seed, "springs");
  const at::Tensor noise = at::randn({count, 2, 2}, policies::make_generator(at::kCPU, seed)) * table_.spread;
  const at::Tensor positions = at::zeros({count, table_.steps, 2}, at::kFloat);
  policies::FoldableLoop passes("batches of samples", rounds);
  while (const auto pass = passes.next()) {
    if (keep_going && !keep_going(*pass, rounds)) return {};
    const dtk::RankShare::Turn turn = shared.share.turn(*pass, batches);
    const int64_t first = turn.batch * at_once, some = std::min(at_once, count - first);
    Batch batch = dtk::read_batch(data, first, some, "starts to draw from");
    batch.tensors[0].add_(noise.narrow(0, first, some));
    batch = on_device(std::move(batch));
    const at::Tensor drawn = predicted(batch);
    const policies::HostCopyScope copy;
    if (turn.is_own) positions.narrow(0, first, some).copy_(drawn);
  }
  policies::zero_if_simulating(positions);
  if (shared.join) shared.join(positions);
  return {{"positions", positions}};
}

void TrainableSprings::check_fit(const dtk::Weights& weights) const {
  const auto no_hints = [](const dtk::Shapes&, const dtk::Shapes&) { return std::string(); };
  dtk::check_fit(weights, parameters(), derived(), no_hints, table_.heads, "springs.heads");
}

}  // namespace springs
