// What is published of memory and time of diffusion transformers in training.
#pragma once
#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::dit {

std::vector<Claim> claims();

}  // namespace dtk::dit
