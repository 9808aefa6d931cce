#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <dtk/models/counted_forward.h>
#include <dtk/models/quantized.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace dtk::models {
namespace {

struct PackedLinear : torch::autograd::Function<PackedLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& codes, const at::Tensor& absmax,
                            const std::optional<at::Tensor>& nested_absmax,
                            const std::optional<at::Tensor>& nested_offset, int64_t packing, int64_t out,
                            int64_t in, bool has_graph) {
    const at::Tensor nested = nested_absmax.value_or(at::Tensor()),
                     offset = nested_offset.value_or(at::Tensor());
    const PackedWeight weight{static_cast<Packing>(packing), out, in, codes, absmax, nested, offset};
    context->saved_data["packing"] = packing;
    context->saved_data["out"] = out;
    context->saved_data["in"] = in;
    context->save_for_backward({codes, absmax, nested, offset});
    const CountedForward mode(has_graph);
    return at::linear(x.detach(), unpacked(weight, x.scalar_type()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& of_result) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    const PackedWeight weight{static_cast<Packing>(number("packing")),
                              number("out"),
                              number("in"),
                              saved[0],
                              saved[1],
                              saved[2],
                              saved[3]};
    torch::autograd::variable_list gradients(9);
    gradients[0] = gradient_of_input(of_result[0], unpacked(weight, of_result[0].scalar_type()));
    return gradients;
  }
};

}  // namespace

at::Tensor packed_linear(const at::Tensor& x, const PackedWeight& weight) {
  const c10::DeviceType device = x.device().type();
  at::Tensor in = x;
  if (at::autocast::is_autocast_enabled(device))
    in = at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return PackedLinear::apply(in, weight.codes, weight.absmax, optional(weight.nested_absmax),
                             optional(weight.nested_offset), static_cast<int64_t>(weight.packing), weight.out,
                             weight.in, at::GradMode::is_enabled());
}

}  // namespace dtk::models
