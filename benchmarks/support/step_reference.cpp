#include "support/step_reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "toolkit/io/file_system.h"
#include "toolkit/io/safetensors.h"

namespace dtk::bench {

void fill_zeros(const models::NamedTensors& parameters, const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad() || parameter.any().item<bool>()) continue;
    at::Tensor(parameter).normal_(0, 0.02, generator);
  }
}

void add_weights_and_gradients(const models::NamedTensors& parameters, std::vector<NamedTensor>& tensors) {
  for (const auto& [name, parameter] : parameters) {
    tensors.push_back({"weight." + name, parameter.detach()});
    if (!parameter.grad().defined()) continue;
    tensors.push_back({"gradient_norm." + name, parameter.grad().norm()});
    parameter.mutable_grad().reset();
  }
}

void write_reference_file(const std::string& path, const std::vector<NamedTensor>& tensors) {
  write_file_atomically(posix_file_system(), path,
                        [&](WritableFile& file) { write_safetensors(file, tensors); });
}

}  // namespace dtk::bench
