// Trainers of tiny runs, and everything that two of them can differ in. Include after support/catch.h.
#pragma once
#include <ATen/ops/equal.h>

#include <memory>
#include <string>
#include <vector>

#include "support/runs/tiny_run.h"
#include "toolkit/train/trainer.h"

namespace dtk::test {

inline std::unique_ptr<Trainer> make_trainer(const RunConfig& config, Clock& clock) {
  return std::make_unique<Trainer>(config, at::kCPU, tiny_data(), clock);
}

inline void run(Trainer& trainer, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) trainer.step();
}

// Weights, moments, averages and streams; live tensors.
inline std::vector<NamedTensor> everything(const Trainer& trainer) {
  std::vector<NamedTensor> all;
  for (const auto& [name, tensor] : trainer.model().parameters())
    all.push_back({"model." + name, tensor.detach()});
  for (const NamedTensor& entry : trainer.optimizer().state()) all.push_back(entry);
  for (const auto& policy : trainer.policies().list()) {
    for (const auto& [name, tensor] : policy->state().tensors) all.push_back({policy->name() + name, tensor});
  }
  return all;
}

inline void check_equal(const Trainer& a, const Trainer& b) {
  const auto left = everything(a), right = everything(b);
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    INFO(left[i].name);
    CHECK(at::equal(left[i].tensor, right[i].tensor));
  }
  CHECK(a.state().step == b.state().step);
  CHECK(a.state().samples == b.state().samples);
}

}  // namespace dtk::test
