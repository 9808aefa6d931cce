// The meter's peaks, in exact bytes.
#include <ATen/ATen.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/step_meter.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"

using namespace dtk::policies;

TEST_CASE("the peak is the highest moment since the meter was made or restarted") {
  StepMeter meter;
  const int64_t before = cpu_accounts().live_bytes();
  const at::Tensor kept = at::empty({10});
  { const at::Tensor a = at::empty({1000}), b = at::empty({500}); }
  { const at::Tensor c = at::empty({1200}); }
  CHECK(meter.peak_bytes() - before == 4 * 1510);
  meter.restart();
  CHECK(meter.peak_bytes() - before == 4 * 10);
  { const at::Tensor c = at::empty({1200}); }
  CHECK(meter.peak_bytes() - before == 4 * 1210);
}

TEST_CASE("the peak of a step covers its phases, and tensors saved for backward have their module") {
  StepMeter meter;
  const at::Tensor weight = at::ones({100}).requires_grad_();
  at::Tensor loss;
  {
    const PhaseScope phase("forward");
    const ModulePathScope path("blocks.3");
    loss = (weight * 2).sin().sum();
  }
  torch::autograd::backward({loss}, {});
  const PhasePeak peak = meter.peak();
  CHECK(peak.peak.bytes == meter.peak_bytes());
  CHECK(peak.peak.items().at(Category::saved).at("blocks.3") == 4 * 100);
}

TEST_CASE("a meter starts with a peak of its own") {
  int64_t first = 0;
  {
    StepMeter meter;
    { const at::Tensor a = at::empty({1000}); }
    first = meter.peak_bytes();
  }
  StepMeter meter;
  CHECK(first - meter.peak_bytes() == 4 * 1000);
}
