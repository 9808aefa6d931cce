// What is published of memory of a VGGT at inference.
#pragma once
#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::vggt {

std::vector<Claim> inference_claims();

/// Of preset 1b on frames of 336 x 518; of others nothing is published.
std::vector<CountedClaim> counted_claims(const RunConfig& config);

}  // namespace dtk::vggt
