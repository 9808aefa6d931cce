// A DiT small enough for a test, on 8 x 8 images of 4 classes.
#pragma once
#include <ATen/core/grad_mode.h>
#include <dtk/models/dit.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>

namespace dtk::test {

/// Two heads. Its weights are not zero, so that every gradient is alive, and belong to the parameters.
inline models::Dit small_dit(int64_t depth, int64_t hidden, int64_t patch, double mlp_dropout,
                             c10::Device device = c10::kCPU) {
  models::DitOptions options;
  options.depth = depth;
  options.hidden = hidden;
  options.heads = 2;
  options.patch = patch;
  options.image_size = 8;
  options.channels = 1;
  options.classes = 4;
  options.learn_sigma = false;
  options.mlp_dropout = mlp_dropout;
  models::Dit dit(options, device, policies::make_generator(device, 3));
  at::NoGradGuard no_grad;
  const at::Generator generator = policies::make_generator(device, 4);
  for (const auto& [name, parameter] : dit.parameters()) {
    if (parameter.requires_grad()) parameter.detach().normal_(0.0, 0.1, generator);
    policies::claim(parameter, policies::Category::parameters, name);
  }
  return dit;
}

}  // namespace dtk::test
