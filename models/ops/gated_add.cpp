#include <dtk/models/ops.h>

#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

void check_gated_add(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  constexpr const char* kName = "dtk::gated_add";
  check_tokens(kName, x);
  check_same_shape(kName, "gate", gate, {x.size(0), x.size(2)}, x);
  check_same_shape(kName, "branch", branch, x.sizes(), x);
  const Types types{x.scalar_type(), gate.scalar_type(), branch.scalar_type()};
  check_types(kName, takes_gated_add(types), types, "gate", "branch");
  check_dense(kName, {{"x", &x}, {"branch", &branch}});
  check_rows(kName, "gate", gate);
}

void check_gated_add_backward(const Tensor& dy, const Tensor& gate, const Tensor& branch,
                              const Tensor& partial) {
  check_gated_add(dy, gate, branch);
  check_partial("dtk::gated_add_backward", partial, {dy.size(0), partials_of(dy.size(1)), 1, dy.size(2)}, dy);
}

Tensor gated_add_shapes(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  check_gated_add(x, gate, branch);
  return at::empty(x.sizes(), x.options());
}

Two gated_add_backward_shapes(const Tensor& dy, const Tensor& gate, const Tensor& branch,
                              const Tensor& partial) {
  check_gated_add_backward(dy, gate, branch, partial);
  return {at::empty(gate.sizes(), gate.options()), at::empty(branch.sizes(), branch.options())};
}

Tensor gated_add_on_cpu(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  Tensor y = gated_add_shapes(x, gate, branch);
  cpu_kernels().gated_add(shape_of(x), {x.scalar_type(), gate.scalar_type(), branch.scalar_type()},
                          x.const_data_ptr(), rows(gate), branch.const_data_ptr(), y.mutable_data_ptr());
  return y;
}

Two gated_add_backward_on_cpu(const Tensor& dy, const Tensor& gate, const Tensor& branch,
                              const Tensor& partial) {
  Two out = gated_add_backward_shapes(dy, gate, branch, partial);
  auto& [dgate, dbranch] = out;
  cpu_kernels().gated_add_backward(shape_of(dy), {dy.scalar_type(), gate.scalar_type(), branch.scalar_type()},
                                   dy.const_data_ptr(), rows(gate), branch.const_data_ptr(),
                                   partial.mutable_data_ptr(), dgate.mutable_data_ptr(),
                                   dbranch.mutable_data_ptr());
  return out;
}

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def("gated_add(Tensor x, Tensor gate, Tensor branch) -> Tensor");
  library.def(
      "gated_add_backward(Tensor dy, Tensor gate, Tensor branch, Tensor(a!) partial) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("gated_add", &gated_add_on_cpu);
  library.impl("gated_add_backward", &gated_add_backward_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("gated_add", &gated_add_shapes);
  library.impl("gated_add_backward", &gated_add_backward_shapes);
}

struct GatedAdd : torch::autograd::Function<GatedAdd> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& gate, const Tensor& branch) {
    context->save_for_backward({gate, branch});
    return gated_add_forward(x, gate, branch);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::gated_add");
    const variable_list saved = context->get_saved_variables();
    const Tensor dy = of_result[0].contiguous();
    auto [dgate, dbranch] = gated_add_backward(dy, saved[0], saved[1]);
    return {dy, dgate, dbranch};
  }
};

}  // namespace

Tensor gated_add_forward(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  static const auto op = operator_of<decltype(gated_add_shapes)>("dtk::gated_add");
  if (x.is_cuda() || gate.is_cuda() || branch.is_cuda()) check_gated_add(x, gate, branch);
  return op.call(x, gate, branch);
}

Two gated_add_backward(const Tensor& dy, const Tensor& gate, const Tensor& branch) {
  static const auto op = operator_of<decltype(gated_add_backward_shapes)>("dtk::gated_add_backward");
  return op.call(dy, gate, branch, partial_sums(dy, {dy.size(0), partials_of(dy.size(1)), 1, dy.size(2)}));
}

Tensor gated_add(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  return GatedAdd::apply(x.contiguous(), with_dense_rows(gate), branch.contiguous());
}

}  // namespace dtk::ops
