// What is published of memory of the driving model in training.
#pragma once
#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {

std::vector<Claim> claims();

}  // namespace dtk::diffusion_planner
