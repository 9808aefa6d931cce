// Whether weights are those of a driving model, and what to set where they are not.
//
// Files of the original's trainers, latest.pth or the like, are dicts with the keys "model" and
// "ema_state_dict" beside the state of the training, all names under "module." where several processes
// trained. open_weights() takes "model", the raw weights, unless a key is given: they are what the original
// validates and exports. "H" and "M" have the same names and shapes: which of the two weights are for, no
// file tells.
#include <dtk/policies/advice.h>

#include <algorithm>

#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/diffusion_planner/trainable.h"

namespace dtk::diffusion_planner {
namespace {

using policies::advise;

using models::DiffusionPlannerOptions;
using Preset = models::DiffusionPlannerPreset;

// Upstream wraps both parts in modules of the same name.
constexpr const char* upstream_prefix = "encoder.encoder.";

bool is_upstream(const Shapes& shapes) {
  return std::any_of(shapes.begin(), shapes.end(),
                     [](const auto& one) { return one.first.starts_with(upstream_prefix); });
}

/// The options that are seen in a dimension of one parameter, or in how many blocks there are.
class Hints {
 public:
  Hints(const Shapes& file, const Shapes& model, const DiffusionPlannerOptions& options)
      : file_(file),
        model_(model),
        upstream_(options.upstream()),
        encoder_(upstream_ ? upstream_prefix : "encoder."),
        dit_(upstream_ ? "decoder.decoder.dit." : "decoder.dit.") {}

  std::string text() {
    const bool file_is_upstream = is_upstream(file_);
    if (file_is_upstream != upstream_) {
      const bool model = file_is_upstream || count_parts(file_, "encoder.") > 0;
      return model ? "\n  The weights are those of another preset; " +
                         advise("diffusion_planner.preset",
                                toml_text(file_is_upstream ? Preset::up : Preset::h)) +
                         (file_is_upstream ? "" : ", or " + toml_text(Preset::m))
                   : "";
    }
    dimension("hidden_dim", encoder_ + "fusion.norm.weight", 1, 0);
    blocks("encoder_mixer_depth", encoder_ + "neighbor_encoder.blocks.");
    blocks("encoder_fusion_depth", encoder_ + "fusion.blocks.");
    blocks("decoder_depth", dit_ + "blocks.");
    dimension("mixer_tokens", points("neighbor_encoder"), 2, 0);
    dimension("mixer_channels", encoder_ + "neighbor_encoder.norm.weight", 1, 0);
    dimension("time_len", points("neighbor_encoder"), 2, 1);
    if (const auto steps = both(dit_ + "final_layer.proj.4.bias", 1, 0)) {
      add("future_len", steps->first / 4 - 1, steps->second / 4 - 1);  // x, y, cos, sin; and the present
    }
    dimension("lane_len", points("lane_encoder"), 2, 1);
    if (!upstream_) {
      dimension("route_len", points("route_encoder"), 2, 1);
      dimension("route_num", encoder_ + "route_position_embedding", 3, 1);
      dimension("polygon_len", points("polygon_encoder"), 2, 1);
      dimension("line_string_len", points("line_string_encoder"), 2, 1);
    }
    return settings_.empty() ? "" : "\n  The weights are of another size; set " + listed(settings_, " and ");
  }

 private:
  std::string points(const std::string& encoder) const {
    return encoder_ + encoder + ".token_pre_project.fc1.weight";
  }

  std::optional<std::pair<int64_t, int64_t>> both(const std::string& name, size_t dimensions,
                                                  size_t dimension) const {
    Shape file, model;
    if (!in_both(file_, model_, name, dimensions, file, model)) return std::nullopt;
    return std::pair(file[dimension], model[dimension]);
  }

  void dimension(const std::string& option, const std::string& name, size_t dimensions, size_t dimension) {
    if (const auto sizes = both(name, dimensions, dimension)) add(option, sizes->first, sizes->second);
  }

  void blocks(const std::string& option, const std::string& prefix) {
    add(option, count_parts(file_, prefix), count_parts(model_, prefix));
  }

  void add(const std::string& option, int64_t in_file, int64_t in_model) {
    if (in_file != in_model && in_file > 0)
      settings_.push_back(fmt::format("diffusion_planner.{} = {}", option, in_file));
  }

  const Shapes& file_;
  const Shapes& model_;
  const bool upstream_;
  const std::string encoder_, dit_;
  std::vector<std::string> settings_;
};

}  // namespace

void TrainableDiffusionPlanner::check_fit(const Weights& weights) const {
  const DiffusionPlannerOptions& options = model_.options();
  const auto hints = [&](const Shapes& file, const Shapes& own) { return Hints(file, own, options).text(); };
  dtk::check_fit(weights, parameters(), derived(), hints, options.num_heads.value(),
                 "diffusion_planner.num_heads");
}

}  // namespace dtk::diffusion_planner
