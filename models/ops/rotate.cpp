#include <dtk/models/ops.h>

#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

void check_rotate(const char* op, const Tensor& x, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  TORCH_CHECK(x.dim() == 4 && x.size(3) > 0, op, ": x is ", x.sizes(), "; allowed: (N, T, H, d) with d > 0");
  TORCH_CHECK(parts > 0 && x.size(3) % (2 * parts) == 0, op, ": ", x.size(3), " channels in ", parts,
              " parts; allowed: parts of two halves each");
  check_same_shape(op, "cosine", cosine, {x.size(1), x.size(3)}, x);
  check_same_shape(op, "sine", sine, {x.size(1), x.size(3)}, x);
  TORCH_CHECK(cosine.scalar_type() == sine.scalar_type(), op, ": cosine is ", cosine.scalar_type(), ", sine ",
              sine.scalar_type(), "; allowed: one type");
  const Types types{x.scalar_type(), cosine.scalar_type(), x.scalar_type()};
  check_types(op, takes_rotate(types), types, "cosine and sine", "result");
  check_dense(op, {{"cosine", &cosine}, {"sine", &sine}});
  TORCH_CHECK(x.stride(3) == 1 || x.numel() == 0, op, ": x has strides ", x.strides(),
              "; allowed: channels without gaps");
}

Tensor rotate_shapes(const Tensor& x, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  check_rotate("dtk::rotate", x, cosine, sine, parts);
  return at::empty(x.sizes(), x.options());
}

Tensor rotated_on_cpu(const Tensor& x, const Tensor& cosine, const Tensor& sine, int64_t parts, bool back) {
  Tensor y = rotate_shapes(x, cosine, sine, parts);
  const Heads heads{x.size(0), x.size(1), x.size(2), x.size(3), x.stride(0), x.stride(1), x.stride(2), parts};
  cpu_kernels().rotate(heads, {x.scalar_type(), cosine.scalar_type(), x.scalar_type()}, x.const_data_ptr(),
                       cosine.const_data_ptr(), sine.const_data_ptr(), back, y.mutable_data_ptr());
  return y;
}
Tensor rotate_on_cpu(const Tensor& x, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  return rotated_on_cpu(x, cosine, sine, parts, false);
}
Tensor rotate_backward_on_cpu(const Tensor& dy, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  return rotated_on_cpu(dy, cosine, sine, parts, true);
}

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def("rotate(Tensor x, Tensor cosine, Tensor sine, int parts) -> Tensor");
  library.def("rotate_backward(Tensor dy, Tensor cosine, Tensor sine, int parts) -> Tensor");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("rotate", &rotate_on_cpu);
  library.impl("rotate_backward", &rotate_backward_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("rotate", &rotate_shapes);
  library.impl("rotate_backward", &rotate_shapes);
}

Tensor with_dense_channels(const Tensor& x) {
  return x.dim() == 4 && x.stride(3) == 1 ? x : x.contiguous();
}

struct Rotate : torch::autograd::Function<Rotate> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cosine, const Tensor& sine,
                        int64_t parts) {
    TORCH_CHECK(!cosine.requires_grad() && !sine.requires_grad(),
                "dtk::rotate: cosine or sine requires a gradient; allowed: constants");
    context->save_for_backward({cosine, sine});
    context->saved_data["parts"] = parts;
    return rotate_forward(x, cosine, sine, parts);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::rotate");
    const variable_list saved = context->get_saved_variables();
    return {rotate_backward(with_dense_channels(of_result[0]), saved[0], saved[1],
                            context->saved_data["parts"].toInt()),
            Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor rotate_forward(const Tensor& x, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  static const auto op = operator_of<decltype(rotate_shapes)>("dtk::rotate");
  if (x.is_cuda() || cosine.is_cuda() || sine.is_cuda()) check_rotate("dtk::rotate", x, cosine, sine, parts);
  return op.call(x, cosine, sine, parts);
}

Tensor rotate_backward(const Tensor& dy, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  static const auto op = operator_of<decltype(rotate_shapes)>("dtk::rotate_backward");
  return op.call(dy, cosine, sine, parts);
}

Tensor rotate(const Tensor& x, const Tensor& cosine, const Tensor& sine, int64_t parts) {
  return Rotate::apply(with_dense_channels(x), cosine.contiguous(), sine.contiguous(), parts);
}

}  // namespace dtk::ops
