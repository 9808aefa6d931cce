#include "cost/operator_flops.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

#include "core/by_shapes.h"

namespace dtk::planner {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

// (…, n, k) x (…, k, m), at positions `First` and the next.
template <size_t First>
OperatorFlops product(Values arguments) {
  const at::Tensor &a = arguments[First].toTensor(), &b = arguments[First + 1].toTensor();
  return {2 * a.numel() * b.size(-1)};
}

// (…, n, k) x (k)
template <size_t Matrix>
OperatorFlops matrix_vector(Values arguments) {
  return {2 * arguments[Matrix].toTensor().numel()};
}

// ---- attention: q (N, H, T, d), k (N, H, S, d), v (N, H, S, e) from position `First`

struct Products {
  int64_t scores;  // q kᵀ
  int64_t values;  // weights v
};

template <size_t First>
Products products_of(Values arguments) {
  const at::Tensor &q = arguments[First].toTensor(), &k = arguments[First + 1].toTensor(),
                   &v = arguments[First + 2].toTensor();
  const int64_t weights = q.numel() / q.size(-1) * k.size(-2);
  return {2 * weights * q.size(-1), 2 * weights * v.size(-1)};
}

OperatorFlops attention(Values arguments) {
  const Products products = products_of<0>(arguments);
  return {products.scores + products.values};
}

// Each product has two factors and so two gradients; the weights were not kept, so the scores come first.
OperatorFlops attention_backward(Values arguments) {
  const Products products = products_of<1>(arguments);
  return {2 * (products.scores + products.values), products.scores};
}

// ---- convolution, in any number of dimensions

// Each position of the result, or of the input where it is transposed, meets the weights of one channel.
int64_t of_positions(int64_t positions, const at::Tensor& weight) {
  return weight.size(0) == 0 ? 0 : 2 * positions * (weight.numel() / weight.size(0));
}

int64_t at_or_only(const std::vector<int64_t>& values, size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
OperatorFlops convolution(Values arguments) {
  const at::Tensor &x = arguments[0].toTensor(), &weight = arguments[1].toTensor();
  if (arguments[6].toBool()) return {of_positions(x.numel(), weight)};
  const auto stride = arguments[3].toIntVector(), padding = arguments[4].toIntVector(),
             dilation = arguments[5].toIntVector();
  int64_t positions = weight.size(0) * (x.dim() == weight.dim() ? x.size(0) : 1);
  for (int64_t i = 2; i < weight.dim(); ++i) {
    const auto at = static_cast<size_t>(i - 2);
    const int64_t reach = at_or_only(dilation, at) * (weight.size(i) - 1) + 1;
    const int64_t padded = x.size(x.dim() - weight.dim() + i) + 2 * at_or_only(padding, at);
    positions *= (padded - reach) / at_or_only(stride, at) + 1;
  }
  return {of_positions(positions, weight)};
}

// (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
// mask)
OperatorFlops convolution_backward(Values arguments) {
  const at::Tensor& weight = arguments[2].toTensor();
  const int64_t positions = arguments[arguments[7].toBool() ? 1 : 0].toTensor().numel();
  const auto mask = arguments[10].toBoolList();
  return {(static_cast<int64_t>(mask[0]) + static_cast<int64_t>(mask[1])) * of_positions(positions, weight)};
}

std::unordered_map<std::string, FlopRule> make_rules() {
  std::unordered_map<std::string, FlopRule> rules;
  for (const char* name :
       {"mm", "mm.out", "bmm", "bmm.out", "_int_mm", "_int_mm.out", "_scaled_mm", "_scaled_mm.out"})
    rules[name] = &product<0>;
  for (const char* name : {"addmm", "addmm.out", "addmm_", "_addmm_activation", "_addmm_activation.out",
                           "baddbmm", "baddbmm.out", "baddbmm_", "addbmm", "addbmm.out", "addbmm_"})
    rules[name] = &product<1>;
  for (const char* name : {"mv", "mv.out", "dot", "dot.out", "vdot", "vdot.out"})
    rules[name] = &matrix_vector<0>;
  for (const char* name : {"addmv", "addmv.out", "addmv_"}) rules[name] = &matrix_vector<1>;
  for (const char* kind : {"flash", "efficient", "cudnn", "fused"}) {
    const std::string name = std::string("_scaled_dot_product_") + kind + "_attention";
    for (const char* device : {"", "_for_cpu", "_overrideable"}) {
      rules[name + device] = &attention;
      rules[name + device + "_backward"] = &attention_backward;
    }
  }
  for (const char* name : {"convolution", "convolution_overrideable", "_convolution"})
    rules[name] = &convolution;
  for (const char* name : {"convolution_backward", "convolution_backward_overrideable"})
    rules[name] = &convolution_backward;
  return rules;
}

}  // namespace

FlopRule flop_rule(const c10::OperatorHandle& op) {
  static const auto* const rules = new auto(make_rules());
  const std::string name = name_of(op);
  if (!name.starts_with("aten::")) return nullptr;
  const auto found = rules->find(name.substr(6));
  return found != rules->end() ? found->second : nullptr;
}

}  // namespace dtk::planner
