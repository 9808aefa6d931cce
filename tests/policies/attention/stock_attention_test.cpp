// LibTorch's own multi-head attention, which keeps its weights: the attention policy finds it. The one file
// that may use it (tests/house/torch_use.py).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/attention.h>
#include <torch/nn/modules/activation.h>

#include "support/catch.h"

using namespace dtk::policies;

TEST_CASE("the stock multi-head attention is refused where the policy was asked for, else listed") {
  torch::nn::MultiheadAttention stock(torch::nn::MultiheadAttentionOptions(32, 4));
  const at::Tensor x = at::randn({16, 2, 32});  // tokens, samples, width
  const auto forward = [&](AttentionPolicy& policy) {
    Seam seam;
    policy.apply(seam);
    const auto scope = policy.forward_scope();
    const ModuleFn fn = [&](Tensors&& in) {
      return Tensors{std::get<0>(stock->forward(in[0], in[0], in[0], {}, /*need_weights=*/false))};
    };
    seam.run("attn", fn, {x});
  };
  AttentionPolicy asked({.enabled = Enabled::on});
  CHECK_THROWS_WITH(
      forward(asked),
      "policies.attention.enabled = true, but attn stores attention weights of its own: softmax of "
      "[8, 16, 16] after a batched product; call the seam's attention there "
      "(at::scaled_dot_product_attention, never torch::nn::MultiheadAttention), or set "
      "policies.attention.enabled = \"default\"");
  AttentionPolicy by_default({});
  forward(by_default);
  CHECK_FALSE(by_default.report().active);
  CHECK_THAT(by_default.report().reason, Catch::Contains("at least 8192 bytes of weights"));
}

TEST_CASE("so is the operator behind the stock encoder's fast path") {
  const at::NoGradGuard no_grad;
  AttentionPolicy policy({});
  {
    const auto scope = policy.forward_scope();
    const at::Tensor x = at::randn({2, 16, 32}), out = at::randn({32, 32}), bias = at::zeros({32});
    at::_native_multi_head_attention(x, x, x, 32, 4, at::randn({96, 32}), at::zeros({96}), out, bias);
  }
  CHECK_THAT(policy.report().reason, Catch::Contains("_native_multi_head_attention of q [2, 16, 32]"));
}
