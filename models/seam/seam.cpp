#include <ATen/ops/scaled_dot_product_attention.h>
#include <dtk/models/seam.h>

#include <utility>

namespace dtk::models {

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

}  // namespace dtk::models
