// What is published of memory and time of a LLaVA in training.
#pragma once
#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::llava {

std::vector<Claim> claims(const RunConfig& config);

}  // namespace dtk::llava
