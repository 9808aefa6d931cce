#include <ATen/ops/scaled_dot_product_attention.h>
#include <dtk/policies/policy.h>

#include <algorithm>
#include <utility>

namespace dtk::policies {

Seam::Seam()
    : run([](std::string_view, const ModuleFn& fn, Tensors&& inputs) { return fn(std::move(inputs)); }),
      keep([](std::string_view, at::Tensor value) { return value; }),
      attention([](at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& call) {
        return at::scaled_dot_product_attention(q, k, v, call.mask, call.dropout, call.causal, call.scale);
      }),
      rows([](std::string_view, const ModuleFn& fn, Tensors&& inputs, const RowsOf&) {
        return fn(std::move(inputs));
      }),
      fuses([](std::string_view) { return false; }) {}

at::Tensor Seam::module(std::string_view path, const std::function<at::Tensor(at::Tensor)>& module,
                        at::Tensor input) const {
  const ModuleFn fn = [module](Tensors&& inputs) { return Tensors{module(std::move(inputs.front()))}; };
  Tensors inputs;
  inputs.push_back(std::move(input));
  return std::move(run(path, fn, std::move(inputs)).front());
}

StoredPolicyState::StoredPolicyState(const PolicyState& state) : counters(state.counters) {
  for (const auto& [name, tensor] : state.tensors) {
    tensors.push_back(
        {name, tensor.sizes().vec(), [kept = tensor](const at::Tensor& into) { into.copy_(kept); }});
  }
}

void Policy::apply(Seam& seam) {
  if (std::find(seam.policies.begin(), seam.policies.end(), name()) != seam.policies.end()) {
    throw PolicyError("policies." + name(), " is in this model already; apply each policy once");
  }
  put_in(seam);
  seam.policies.push_back(name());
}

}  // namespace dtk::policies
