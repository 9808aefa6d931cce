// Weights that a file holds in few bits, as bitsandbytes packs them and transformers writes them:
// NF4 as "weight" (codes), "weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4" (JSON
// as bytes), and with double quantisation "weight.nested_absmax" and "weight.nested_quant_map"; int8 as
// "weight" and "SCB", its rows' magnitudes, and "weight_format".
#pragma once
#include <dtk/models/quantized.h>

#include <optional>
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"

namespace dtk::llava {

/// Each such group as one tensor (out, in), which is unpacked to fp32 where it is read. Throws DataError that
/// begins with the weights' place for other kinds of packing, other values than NF4's, and what is not of one
/// size.
Weights with_packed_joined(Weights weights);

/// What a tensor's file holds, on the CPU; nothing where it is not packed there, or otherwise.
std::optional<models::PackedWeight> packed_in_file(const StoredTensor& stored, models::Packing packing,
                                                   bool double_quant);

/// A packed weight as such files hold it; `name` ends in ".weight".
std::vector<NamedTensor> as_in_file(const std::string& name, const models::PackedWeight& weight);

}  // namespace dtk::llava
