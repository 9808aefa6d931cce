#include <dtk/models/ops.h>

#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

void check_silu_mul(const char* op, const Tensor& gate, const Tensor& up) {
  check_channels(op, "gate", gate);
  check_same_shape(op, "up", up, gate.sizes(), gate);
  const Types types{gate.scalar_type(), up.scalar_type(), gate.scalar_type()};
  TORCH_CHECK(takes_silu_mul(types), op, ": gate is ", types.x, ", up ", types.row,
              "; allowed: one type of Float, BFloat16, Half and Double");
  check_dense(op, {{"gate", &gate}, {"up", &up}});
}

Tensor silu_mul_shapes(const Tensor& gate, const Tensor& up) {
  check_silu_mul("dtk::silu_mul", gate, up);
  return at::empty(gate.sizes(), gate.options());
}
Two silu_mul_backward_shapes(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  constexpr const char* kName = "dtk::silu_mul_backward";
  check_silu_mul(kName, gate, up);
  check_silu_mul(kName, dy, up);
  return {at::empty(gate.sizes(), gate.options()), at::empty(gate.sizes(), gate.options())};
}

Tensor silu_mul_on_cpu(const Tensor& gate, const Tensor& up) {
  Tensor y = silu_mul_shapes(gate, up);
  const at::ScalarType type = gate.scalar_type();
  cpu_kernels().silu_mul(rows_of(gate), {type, type, type}, gate.const_data_ptr(), up.const_data_ptr(),
                         y.mutable_data_ptr());
  return y;
}
Two silu_mul_backward_on_cpu(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  Two out = silu_mul_backward_shapes(dy, gate, up);
  auto& [dgate, dup] = out;
  const at::ScalarType type = gate.scalar_type();
  cpu_kernels().silu_mul_backward(rows_of(gate), {type, type, type}, dy.const_data_ptr(),
                                  gate.const_data_ptr(), up.const_data_ptr(), dgate.mutable_data_ptr(),
                                  dup.mutable_data_ptr());
  return out;
}

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def("silu_mul(Tensor gate, Tensor up) -> Tensor");
  library.def("silu_mul_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("silu_mul", &silu_mul_on_cpu);
  library.impl("silu_mul_backward", &silu_mul_backward_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("silu_mul", &silu_mul_shapes);
  library.impl("silu_mul_backward", &silu_mul_backward_shapes);
}

struct SiluMul : torch::autograd::Function<SiluMul> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    context->save_for_backward({gate, up});
    return silu_mul_forward(gate, up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::silu_mul");
    const variable_list saved = context->get_saved_variables();
    auto [dgate, dup] = silu_mul_backward(of_result[0].contiguous(), saved[0], saved[1]);
    return {dgate, dup};
  }
};

}  // namespace

Tensor silu_mul_forward(const Tensor& gate, const Tensor& up) {
  static const auto op = operator_of<decltype(silu_mul_shapes)>("dtk::silu_mul");
  if (gate.is_cuda() || up.is_cuda()) check_silu_mul("dtk::silu_mul", gate, up);
  return op.call(gate, up);
}

Two silu_mul_backward(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  static const auto op = operator_of<decltype(silu_mul_backward_shapes)>("dtk::silu_mul_backward");
  return op.call(dy, gate, up);
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  return SiluMul::apply(gate.contiguous(), up.contiguous());
}

}  // namespace dtk::ops
