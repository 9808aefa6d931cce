// The shortest configuration that the rules accept.
#pragma once
#include "toolkit/config/config.h"

namespace dtk::test {

inline RunConfig smallest() {
  RunConfig config;
  config.train.steps = 1;
  config.model.name = "DiT-S/4";
  config.model.learn_sigma = false;  // the only value for rectified flow
  return config;
}

}  // namespace dtk::test
