#include "toolkit/families/vggt/trainable.h"

#include <ATen/ATen.h>

#include <utility>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/vggt/losses.h"
#include "toolkit/families/vggt/options.h"
#include "toolkit/families/vggt/scenes.h"

namespace dtk::vggt {

TrainableVggt::TrainableVggt(const RunConfig& config, c10::Device device,
                             std::optional<at::Generator> generator, models::VggtTypes types,
                             const models::ParameterMade& made)
    : TrainableVggt(config,
                    models::Vggt(options_of(config).model, device, std::move(generator), types, made)) {}

TrainableVggt::TrainableVggt(const RunConfig& config, models::Vggt model)
    : config_(config), model_(std::move(model)) {}

// The encoder's own training hid patches behind it.
std::vector<std::string> TrainableVggt::unused() const {
  return {"aggregator.patch_embed.mask_token"};
}

// The parts of a dense head are called by the tap that they read, and their weights by their number.
std::vector<std::string> TrainableVggt::weight_paths() const {
  std::vector<std::string> found = paths();
  for (const std::string& head : model_.dense_heads())
    std::erase_if(found, [&](const std::string& path) { return path.starts_with(head); });
  return found;
}

std::unique_ptr<TrainableModel> TrainableVggt::with_own_seam() const {
  models::Vggt model = model_;
  model.seam = models::Seam();
  return std::unique_ptr<TrainableModel>(new TrainableVggt(config_, std::move(model)));
}

at::Tensor TrainableVggt::loss(Batch batch, const at::Generator&, bool) const {
  for (at::Tensor& tensor : batch.tensors) tensor = tensor.to(device(), /*non_blocking=*/true);
  at::Tensor pictures = std::move(batch.tensors.at(kPictures));
  const models::VggtSize size =
      model_.size_of(pictures.size(0), pictures.size(1), pictures.size(3), pictures.size(4));
  pictures = pictures.flatten(0, 1);
  at::Tensor tokens =
      model_.encode(size, [&](int64_t first, int64_t count) { return pictures.narrow(0, first, count); });
  pictures.reset();
  models::VggtTaps taps = model_.aggregate(std::move(tokens), size);
  const LossOptions& options = options_of(config_).loss;
  at::Tensor loss;
  const auto add = [&](const at::Tensor& term, double weight) {
    const at::Tensor weighed = term * weight;
    loss = loss.defined() ? loss + weighed : weighed;
  };
  if (taps.camera.defined())
    add(camera_loss(model_.poses(std::move(taps.camera)), batch.tensors.at(kPoses)), options.camera);
  for (size_t i = 0; i < model_.dense_heads().size(); ++i) {
    models::Tensors found = model_.dense(i, taps, size);
    for (at::Tensor& one : found) one = one.unflatten(0, {size.scenes, size.frames});
    add(depth_loss(found[0], found[1], batch.tensors.at(kDepths), options), options.depth);
  }
  return loss;
}

Batch TrainableVggt::made_up_batch(int64_t samples, const at::Generator& generator) const {
  Batch batch = allocate_batch(options_of(config_).data, samples, device());
  for (at::Tensor& tensor : batch.tensors) tensor.uniform_(0, 1, generator);
  return batch;
}

// A file's heads that this model has not are not read; a track head is none that it could have.
Weights TrainableVggt::own_names(Weights weights) const {
  std::erase_if(weights.tensors, [&](const StoredTensor& one) {
    for (const char* const head : {"camera_head.", "depth_head.", "point_head.", "track_head."}) {
      if (!one.name.starts_with(head)) continue;
      const auto& all = parameters();
      return std::none_of(all.begin(), all.end(),
                          [&](const auto& parameter) { return parameter.first.starts_with(head); });
    }
    return false;
  });
  return weights;
}

void TrainableVggt::check_fit(const Weights& weights) const {
  const models::VggtOptions& options = model_.options();
  const auto hints = [&](const Shapes& file, const Shapes& own) {
    std::string settings;
    Shape in_file, in_model;
    const auto say = [&](const std::string& key, int64_t value) {
      settings += fmt::format("{}{} = {}", settings.empty() ? "" : ", ", key, value);
    };
    if (in_both(file, own, "aggregator.patch_embed.cls_token", 3, in_file, in_model) &&
        in_file[2] != in_model[2])
      say("vggt.hidden", in_file[2]);
    for (const auto& [key, prefix] : {std::pair("vggt.encoder", "aggregator.patch_embed.blocks."),
                                      {"vggt.depth", "aggregator.frame_blocks."},
                                      {"vggt.trunk", "camera_head.trunk."}}) {
      const int64_t there = count_parts(file, prefix);
      if (there > 0 && there != count_parts(own, prefix)) say(key, there);  // none: of another model
    }
    return settings.empty() ? std::string() : "\n  These weights have " + settings + "; set [vggt] so";
  };
  dtk::check_fit(weights, parameters(), derived(), hints, *options.heads, "vggt.heads");
}

}  // namespace dtk::vggt
