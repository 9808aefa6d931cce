// Weights as other programs read them: adapters joined in, matrices packed.
#pragma once
#include <string>

#include "toolkit/train/model_family.h"

namespace dtk::llava {

/// As ModelFamily::exporting(). Packed ("nf4" or "int8") are the decoder's matrices without their adapters,
/// as bitsandbytes packs them; what a file holds packed so, and nothing is joined with, is written as it is.
ModelFamily::Exporting exporting(const Weights& own, const RunConfig& config, const ExportChanges& changes);
std::string lost_by_export(const RunConfig& config, const ExportChanges& changes);

}  // namespace dtk::llava
