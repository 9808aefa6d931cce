// Trained weights of the driving planner: from wherever weights are kept (weights.h), also the files that the
// original's trainers write, and back under the published names.
//
// Such a file, latest.pth or the like, is a dict with the keys "model" and "ema_state_dict" beside the state
// of the training, all names under "module." where several processes trained. open_weights() takes "model",
// the raw weights, unless a key is given: they are what the original validates and exports.
#pragma once
#include <dtk/models/diffusion_planner.h>

#include <vector>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

/// As check_fit() of weights_fit.h: throws ConfigError unless the weights are all parameters of this model,
/// which may be on the meta device, and no others, and says what to set where preset, depths or sizes differ.
/// "H" and "M" have the same names and shapes: which of the two weights are for, no file tells.
void check_fit(const Weights& weights, const models::DiffusionPlanner& model);

/// Checks the fit, then copies the weights into the model's parameters, in their dtype and on their device.
void load_weights(const Weights& weights, const models::DiffusionPlanner& model);

/// Checks the fit, then reads all weights: float32 on the CPU, under the published names and in their order,
/// for write_torch_file() and write_safetensors().
std::vector<NamedTensor> weights_to_export(const Weights& weights, const models::DiffusionPlanner& model);

}  // namespace dtk
