// Weights against the parameters of a model of any kind.
#pragma once
#include <dtk/models/layers.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"

namespace dtk {

using Shape = std::vector<int64_t>;
using Shapes = std::map<std::string, Shape>;

/// What differences mean in the terms of the configuration: lines that begin with a line break, or nothing.
using FitHints = std::function<std::string(const Shapes& file, const Shapes& model)>;

/// The shapes of one name in file and model; false unless both have it, with `dimensions` dimensions.
bool in_both(const Shapes& file, const Shapes& model, const std::string& name, size_t dimensions,
             Shape& in_file, Shape& in_model);

/// How many different parts of names follow `prefix`: blocks, of "blocks.".
int64_t count_parts(const Shapes& shapes, const std::string& prefix);

/// Throws ConfigError, from the weights' place on, if the weights are not those of a model with these
/// parameters (which may be on the meta device): all names that are missing, unknown, or of another shape or
/// type, the first few of each written out; the message ends with the hints. Those that are `derived`, which
/// the model makes itself, may be missing. `heads`: of the model's attention, by the option `heads_option`.
void check_fit(const Weights& weights, const models::NamedTensors& parameters,
               const std::vector<std::string>& derived, const FitHints& hints, int64_t heads,
               const std::string& heads_option);

/// Copies those weights that the parameters have, in the parameters' dtype and on their device.
void copy_weights(const Weights& weights, const models::NamedTensors& parameters);

}  // namespace dtk
