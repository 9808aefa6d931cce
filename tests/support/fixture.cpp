#include "support/fixture.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "toolkit/io/file_system.h"
#include "toolkit/io/safetensors.h"

namespace dtk::test {

const at::Tensor& Fixture::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::out_of_range("the fixture has no entry " + name);
  return found->second;
}

Fixture read_fixture(const std::string& name) {
  const std::string path = std::string(DTK_FIXTURES) + "/" + name + ".safetensors";
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : open_safetensors(posix_file_system(), path))
    tensors.emplace(entry.name, entry.read());
  return Fixture(std::move(tensors));
}

void load_parameters(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                     const Fixture& fixture, const std::string& prefix) {
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) parameter.detach().copy_(fixture.at(prefix + name));
}

}  // namespace dtk::test
