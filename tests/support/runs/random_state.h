// Where the random numbers of the CPU stand.
#pragma once
#include <ATen/Context.h>
#include <dtk/policies/guards.h>

#include <string>

namespace dtk::test {

/// Of the default generator.
inline std::string random_state() {
  return policies::generator_state(at::globalContext().defaultGenerator(at::kCPU));
}

}  // namespace dtk::test
