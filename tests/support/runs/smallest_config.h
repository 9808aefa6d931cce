// The shortest configuration that the rules accept.
#pragma once
#include "toolkit/config/config.h"
#include "toolkit/families/dit/options.h"

namespace dtk::test {

inline RunConfig smallest() {
  RunConfig config;
  config.train.steps = 1;
  config.policies = dit::policy_defaults();
  dit::options_of(config).model.name = dtk::models::DitPreset::s_4;
  dit::options_of(config).model.learn_sigma = false;  // the only value for rectified flow
  return config;
}

}  // namespace dtk::test
