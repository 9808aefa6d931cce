#include "toolkit/families/vggt/inference.h"

#include <ATen/ops/empty.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/precision.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/simulation.h>

#include <algorithm>

#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/families/vggt/options.h"
#include "toolkit/families/vggt/trainable.h"
#include "toolkit/train/apply_policies.h"

namespace dtk::vggt {
namespace {

using policies::Enabled;
using policies::PhaseScope;

struct Stopped {};

at::ScalarType computed_in(const policies::PrecisionOptions& precision, c10::Device device) {
  if (precision.enabled == Enabled::off) return at::kFloat;
  const bool narrow =
      precision.enabled == Enabled::on || !device.is_cpu() || precision.cpu == policies::CpuPrecision::bf16;
  return narrow ? at::kBFloat16 : at::kFloat;
}

bool are_narrow(const policies::PolicyOptions& options) {
  return options.inference.enabled != Enabled::off && options.inference.narrow_weights;
}

models::VggtTypes types_of(const RunConfig& config, c10::Device device) {
  models::VggtTypes types;
  if (!are_narrow(config.policies)) return types;
  types.aggregator = computed_in(config.policies.precision, device);
  if (options_of(config).infer.narrow_heads) types.heads = types.aggregator;
  return types;
}

// Weights in the type that is computed in leave autocast nothing to do, which would bring norms back to fp32.
policies::PolicyOptions without_casts(policies::PolicyOptions options) {
  if (are_narrow(options)) options.precision.enabled = Enabled::off;
  return options;
}

// Autocast has nothing to do where weights are held so.
void say_types(std::vector<policies::PolicyReport>& reports, const models::VggtTypes& types) {
  const auto name = [](at::ScalarType type) { return type == at::kBFloat16 ? "bf16" : "fp32"; };
  policies::PolicyReport* const report = policies::report_of(reports, policies::Precision::kName);
  if (report == nullptr) return;
  report->active = types.aggregator != at::kFloat;
  report->reason =
      fmt::format("weights are held in {}, those of heads in {}", name(types.aggregator), name(types.heads));
}

// A plan says what such a job would take; nobody runs one.
void refuse_stored_attention(const RunConfig& config, const models::VggtSize& size) {
  if (config.policies.attention.enabled != Enabled::off || policies::simulating()) return;
  const models::VggtOptions model = models::resolved(options_of(config).model);
  const int64_t tokens = size.frames * (size.rows * size.columns + model.special_tokens());
  throw policies::PolicyError(
      "policies.attention.enabled",
      fmt::format(
          " = false: every global block would store {} bytes of attention weights, 4 for each head and "
          "pair of {} tokens; remove it",
          4 * *model.heads * tokens * tokens, tokens));
}

// Autocast, which reads that list, has nothing to do then; that it has the heads is the default.
void refuse_fp32_list(const RunConfig& config) {
  const policies::PolicyOptions& options = config.policies;
  if (!are_narrow(options) || options.precision.enabled == Enabled::off || options.precision.fp32.empty() ||
      options.precision.fp32 == models::head_paths(options_of(config).model))
    return;
  throw policies::PolicyError("policies.precision.fp32",
                              " names modules for autocast, and weights that are held narrow leave it "
                              "nothing to do; heads are in fp32 unless vggt.infer.narrow_heads says "
                              "otherwise: remove it, or " +
                                  policies::advise("policies.inference.narrow_weights", "false"));
}

at::Tensor on_host(at::Tensor some) {
  some = some.detach().to(at::kFloat);
  if (some.is_cpu()) return some.contiguous();
  const policies::OwnerScope owner(policies::Category::data, "results");
  const at::Tensor there = at::empty(some.sizes(), at::kFloat);
  const policies::HostCopyScope copy;
  there.copy_(some);
  return there;
}

}  // namespace

std::optional<std::vector<policies::PolicyReport>> infer(const RunConfig& config, c10::Device device,
                                                         const Weights* weights, const Scene& scene,
                                                         Results& results, const KeepGoing& keep_going,
                                                         const ModelFamily::PutIn& put_in) try {
  refuse_fp32_list(config);
  const policies::SavedTensorEngineGuard engine;
  const PhaseScope between("write");  // the others
  const models::VggtTypes types = types_of(config, device);
  std::optional<TrainableVggt> model;
  {
    const PhaseScope phase("load");
    const policies::OwnerScope owner(policies::Category::parameters, "model");
    const auto draws = policies::make_generator(device, stream_seed(config.train.seed, "weights"));
    model.emplace(config, device, draws, types);
    if (weights != nullptr) load_weights(*weights, *model);
  }
  policies::PolicySet set = put_policies_in(without_casts(config.policies), *model, /*training=*/false);
  if (put_in) put_in(model->seam(), model->parameters(), model->paths());
  const models::Vggt& net = model->model();
  const auto heads = std::ssize(net.dense_heads());
  int64_t done = 0;
  const int64_t all = scene.frames * (1 + heads);
  const auto go_on = [&](int64_t frames) {
    if (keep_going && !keep_going(done, all)) throw Stopped();
    done += frames;
  };
  if (keep_going) {  // also between blocks
    models::Seam& seam = model->seam();
    seam.run = [inner = std::move(seam.run), &go_on](std::string_view path, const models::ModuleFn& fn,
                                                     models::Tensors&& inputs) {
      go_on(0);
      return inner(path, fn, std::move(inputs));
    };
  }
  const auto scope = set.forward_scope();
  const policies::SavedTensorScope saved(policies::saved_tensor_ledger());
  const models::VggtSize size = net.size_of(1, scene.frames, scene.height, scene.width);
  refuse_stored_attention(config, size);
  at::Tensor tokens;
  {
    const PhaseScope phase("encode");
    tokens = net.encode(size, [&](int64_t first, int64_t count) {
      go_on(count);
      return scene.read(first, count);
    });
  }
  models::VggtTaps taps;
  {
    const PhaseScope phase("aggregate");
    taps = net.aggregate(std::move(tokens), size);
  }
  if (taps.camera.defined()) {
    const PhaseScope phase("camera");
    at::Tensor poses = net.poses(std::move(taps.camera)).back().squeeze(0);
    const PhaseScope write("write");
    results.take_poses(on_host(std::move(poses)));
  }
  for (int64_t i = 0; i < heads; ++i) {
    const bool are_depths = net.is_of_depths(static_cast<size_t>(i));
    const PhaseScope phase(are_depths ? "depth" : "points");
    net.dense(static_cast<size_t>(i), taps, size, [&](int64_t first, at::Tensor values, at::Tensor sure) {
      go_on(values.size(0));
      const PhaseScope write("write");
      values = on_host(std::move(values));
      sure = on_host(std::move(sure));
      are_depths ? results.take_depths(first, values, sure) : results.take_points(first, values, sure);
    });
  }
  std::vector<policies::PolicyReport> reports = set.reports();
  if (are_narrow(config.policies)) say_types(reports, types);
  policies::step_done();
  return reports;
} catch (const Stopped&) {
  return std::nullopt;
}

}  // namespace dtk::vggt
