#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <c10/util/StringUtil.h>
#include <dtk/models/diffusion_planner.h>

#include <map>
#include <stdexcept>
#include <utility>

#include "diffusion_planner/parts.h"
#include "seam/option_text.h"

namespace dtk::models {
namespace {

// (N, 1, 1, P): the ego and those of the first neighbours that are there now
at::Tensor present_actors(const at::Tensor& past, int64_t predicted) {
  const at::Tensor now = past.select(2, past.size(2) - 1).narrow(1, 0, predicted).narrow(2, 0, 4);
  const at::Tensor present = now.ne(0).any(-1);
  const at::Tensor ego = at::ones({past.size(0), 1}, present.options());
  return at::cat({ego, present}, 1).view({past.size(0), 1, 1, predicted + 1});
}

void check(const DrivingScene& scene, const DiffusionPlannerOptions& options) {
  std::map<std::string, at::Tensor> tensors;
  DrivingScene::fields(scene, [&](const char* key, const at::Tensor& tensor) { tensors[key] = tensor; });
  const at::Tensor& first = scene.neighbor_agents_past;
  const int64_t n = first.defined() && first.dim() > 0 ? first.size(0) : 0;
  for (const auto& [key, shape] : scene_shapes(options)) {
    std::vector<int64_t> wanted = {n};
    wanted.insert(wanted.end(), shape.begin(), shape.end());
    const at::Tensor& tensor = tensors.at(key);
    if (tensor.defined() && n > 0 && tensor.sizes() == wanted) continue;
    throw std::invalid_argument(
        c10::str("scene.", key, ": ", tensor.defined() ? c10::str(tensor.sizes()) : "undefined",
                 "; diffusion_planner.preset = \"", text(options.preset), "\" reads the shape [N, ",
                 c10::Join(", ", shape), "], with the N >= 1 of neighbor_agents_past (", n,
                 "); build the batch with the model's sizes, or the model with those of the data"));
  }
}

void check_denoise(const at::Tensor& x, const at::Tensor& t, const DiffusionPlannerOptions& options) {
  const int64_t n = x.dim() > 0 ? x.size(0) : 0;
  const int64_t actors = 1 + *options.predicted_neighbor_num, steps = 1 + *options.future_len;
  const std::vector<int64_t> poses = {n, actors, steps, 4};
  const std::vector<int64_t> times =
      options.upstream() ? std::vector<int64_t>{n} : std::vector<int64_t>{n, actors, steps, 1};
  if (x.sizes() == poses && t.sizes() == times) return;
  throw std::invalid_argument(c10::str("denoise: x ", x.sizes(), " at t ", t.sizes(),
                                       "; diffusion_planner.preset = \"", text(options.preset), "\" takes x ",
                                       at::IntArrayRef(poses), " and t ", at::IntArrayRef(times)));
}

}  // namespace

DiffusionPlanner::DiffusionPlanner(const DiffusionPlannerOptions& options, c10::Device device,
                                   std::optional<at::Generator> generator, const ParameterMade& made)
    : options_(resolved(options)) {
  at::NoGradGuard no_grad;
  parts_ = std::make_shared<diffusion_planner::Parts>(
      diffusion_planner::build(options_, device, std::move(generator), made, parameters_, paths_));
}

DrivingContext DiffusionPlanner::encode(const DrivingScene& scene, bool training) const {
  check(scene, options_);
  const diffusion_planner::Pass pass{&seam, training};
  DrivingContext context;
  context.encoding = diffusion_planner::encode(parts_->encoder, options_, scene, pass);
  context.attend_actors = present_actors(scene.neighbor_agents_past, *options_.predicted_neighbor_num);
  if (options_.mask_context.value_or(false)) {
    const at::Tensor attended = context.encoding.ne(0).any(-1);  // (N, O)
    context.attend_context = attended.view({attended.size(0), 1, 1, attended.size(1)});
  }
  if (options_.upstream()) {
    context.route = diffusion_planner::encode_route(*parts_->decoder.route, scene.route_lanes, pass);
  }
  return context;
}

at::Tensor DiffusionPlanner::denoise(at::Tensor x, at::Tensor t, const DrivingContext& context,
                                     bool training) const {
  check_denoise(x, t, options_);
  return diffusion_planner::denoise(parts_->decoder, options_, std::move(x), std::move(t), context,
                                    {&seam, training});
}

at::Tensor DiffusionPlanner::turn_indicator(const at::Tensor& ego, const at::Tensor& encoding) const {
  if (options_.upstream()) {
    throw std::logic_error("diffusion_planner.preset = \"" + text(options_.preset) +
                           "\" has no turn indicator; use \"" + text(DiffusionPlannerPreset::h) + "\" or \"" +
                           text(DiffusionPlannerPreset::m) + "\"");
  }
  return diffusion_planner::turn_indicator(parts_->decoder, ego, encoding, {&seam, false});
}

}  // namespace dtk::models
