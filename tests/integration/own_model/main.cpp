// A stranger's program around an installed model: one training pass of a DiT under the policies' defaults.
#include <ATen/ATen.h>
#include <dtk/models/dit.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>

int main() {
  dtk::models::DitOptions options;
  options.name = dtk::models::DitPreset::custom;
  options.depth = 2;
  options.hidden = 16;
  options.heads = 2;
  options.patch = 4;
  options.image_size = 8;
  options.channels = 1;
  options.classes = 4;
  dtk::models::Dit dit(options, at::kCPU);
  dtk::policies::Seam seam;
  dtk::policies::PolicyOptions chosen;
  chosen.precision.fp32 = {dtk::models::dit_fp32_end};
  dtk::policies::PolicySet policies(chosen, {at::kCPU, dit.parameters(), dit.paths()}, seam);
  dit.seam.run = seam.run;
  dit.seam.keep = seam.keep;
  dit.seam.attention = seam.attention;
  dit.seam.fuses = seam.fuses;
  at::Tensor loss;
  {
    const auto scope = policies.forward_scope();
    const at::Tensor x = at::ones({2, 1, 8, 8}), t = at::full({2}, 500.0), y = at::arange(2);
    loss = (dit.forward(x, t, y, /*training=*/true) - 1).pow(2).mean();
  }
  torch::autograd::backward({loss}, {});
  int gradients = 0, trained = 0;
  for (const auto& [name, parameter] : dit.parameters()) {
    trained += parameter.requires_grad();
    gradients += parameter.grad().defined();
  }
  std::printf("loss %.3f, %d gradients of %d parameters\n", loss.item<double>(), gradients, trained);
  for (const auto& report : policies.reports())
    std::printf("%s %s: %s\n", report.policy.c_str(), report.active ? "on" : "off", report.reason.c_str());
}
