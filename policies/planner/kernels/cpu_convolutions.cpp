// Convolutions on the CPU: by oneDNN, and by LibTorch's own kernel for what oneDNN does not take. A
// transposed one, and the weight's gradient of one in channels last by oneDNN, are not among them: they are
// computed.
#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>

#include "kernels/kernel_results.h"
#include "kernels/shape_kernels.h"

namespace dtk::planner {
namespace {

using at::Tensor;

// ---- convolution without oneDNN: ConvolutionMM2d.cpp

// The columns that the input is unfolded to; a kernel of one point reads the input itself.
Tensor columns_of(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                  int64_t positions) {
  const bool is_point = kernel[0] == 1 && kernel[1] == 1 && stride[0] == 1 && stride[1] == 1 &&
                        padding[0] == 0 && padding[1] == 0;
  if (is_point) return x;
  return make_scratch(x, {x.size(0), x.size(1) * kernel[0] * kernel[1], positions}, x.scalar_type());
}

at::MemoryFormat format_of(const Tensor& x, const Tensor& weight) {
  return at::native::thnn_conv_use_channels_last(x, weight) ? at::MemoryFormat::ChannelsLast
                                                            : at::MemoryFormat::Contiguous;
}

Tensor slow_convolution(const Tensor& self, const Tensor& weight, at::IntArrayRef kernel,
                        const OptionalTensor& bias, at::IntArrayRef stride, at::IntArrayRef padding) {
  const at::MemoryFormat format = format_of(self, weight);
  const Tensor out = make(self, {0}, self.scalar_type());
  const Tensor w = weight.contiguous(format), x = self.contiguous(format);
  const int64_t rows = (x.size(2) + 2 * padding[0] - kernel[0]) / stride[0] + 1;
  const int64_t columns = (x.size(3) + 2 * padding[1] - kernel[1]) / stride[1] + 1;
  const Tensor unfolded = columns_of(x, kernel, stride, padding, rows * columns);
  out.resize_({x.size(0), weight.size(0), rows, columns}, format);
  if (bias && bias->defined()) out.copy_(bias->reshape({-1, 1, 1}));
  return out;
}

Three slow_convolution_backward(const Tensor& grad, const Tensor& self, const Tensor& weight,
                                at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                                Mask mask) {
  const at::MemoryFormat format = format_of(self, weight);
  const auto empty = [&](bool wanted) { return wanted ? make(grad, {0}, grad.scalar_type()) : Tensor(); };
  const Tensor grad_input = empty(mask[0]), grad_weight = empty(mask[1]);
  Tensor grad_bias = empty(mask[2]);
  if (mask[0]) {
    const Tensor w = weight.contiguous(format), x = self.contiguous(format), dy = grad.contiguous(format);
    grad_input.resize_(x.sizes(), format);
  }
  if (mask[2]) at::sum_out(grad_bias, grad, at::IntArrayRef{0, 2, 3});
  if (mask[1]) {
    grad_weight.resize_(weight.sizes(), weight.suggest_memory_format());
    const Tensor dy = grad.contiguous(format), x = self.contiguous(format);
    const Tensor unfolded = columns_of(x, kernel, stride, padding, grad.size(2) * grad.size(3));
  }
  return {grad_input, grad_weight, grad_bias};
}

// ---- convolution with oneDNN: mkldnn/Conv.cpp. What oneDNN reorders and packs is scratch.

at::DimVector of_each_dimension(at::IntArrayRef values, int64_t dimensions) {
  return values.size() == 1 ? at::DimVector(static_cast<size_t>(dimensions), values[0])
                            : at::DimVector(values);
}

at::MemoryFormat onednn_format(const Tensor& x, const Tensor& weight) {
  if (!at::native::mkldnn_conv_use_channels_last(x, weight)) return at::MemoryFormat::Contiguous;
  return x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
}

Tensor in_format(const Tensor& like, at::IntArrayRef sizes, at::MemoryFormat format) {
  return at::empty(sizes, like.options().memory_format(format));
}

Tensor onednn_convolution(const Tensor& input, const Tensor& weight, const OptionalTensor&,
                          at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation,
                          int64_t) {
  const at::MemoryFormat format = onednn_format(input, weight);
  const int64_t dimensions = input.dim() - 2;
  const auto sizes = at::native::conv_output_size(
      input.sizes(), weight.sizes(), of_each_dimension(padding, dimensions),
      of_each_dimension(stride, dimensions), of_each_dimension(dilation, dimensions));
  const Tensor x = input.contiguous(format), w = weight.contiguous(format);
  return in_format(input, sizes, format);
}

Three onednn_gradients(const Tensor& grad, const Tensor& input, const Tensor& weight, Mask mask) {
  const at::MemoryFormat format = onednn_format(input, weight);
  const Tensor x = input.contiguous(format), w = weight.contiguous(format), dy = grad.contiguous(format);
  Tensor grad_input, grad_weight, grad_bias;
  if (mask[0]) grad_input = in_format(dy, x.sizes(), format);
  // The kernel gives both or none.
  if (mask[1] || mask[2]) grad_weight = make(dy, w.sizes(), dy.scalar_type());
  if (mask[2]) grad_bias = make(dy, {w.size(0)}, dy.scalar_type());
  return {grad_input, grad_weight, grad_bias};
}

// As convolution_backward() of Convolution.cpp calls the kernel, which has no operator of its own.
Three onednn_convolution_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                  at::OptionalIntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                                  bool, at::IntArrayRef, int64_t, Mask mask) {
  if (x.dim() != 3) return onednn_gradients(grad, x, weight, mask);
  // One dimension is computed as two. Only what was asked for gets its shape back.
  auto [grad_input, grad_weight, grad_bias] =
      onednn_gradients(grad.unsqueeze(2), x.contiguous().unsqueeze(2), weight.unsqueeze(2), mask);
  if (mask[0]) grad_input = grad_input.squeeze(2);
  if (mask[1]) grad_weight = grad_weight.squeeze(2);
  return {grad_input, grad_weight, grad_bias};
}

// True where oneDNN computes it and its storages follow from the arguments. Channels last, oneDNN decides by
// the processor whether the weight's gradient is copied once more.
bool onednn_backward_is_known(c10::ArrayRef<c10::IValue> arguments) {
  const Tensor x = arguments[1].toTensor(), weight = arguments[2].toTensor();
  const auto sizes = [&](size_t i) { return arguments[i].toDimVector(); };
  const at::DimVector stride = sizes(4), padding = sizes(5), dilation = sizes(6), output_padding = sizes(8);
  const auto backend = at::native::select_conv_backend(
      x, weight, std::nullopt, c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
      c10::fromIntArrayRefSlow(dilation), arguments[7].toBool(), c10::fromIntArrayRefSlow(output_padding),
      arguments[9].toInt(), std::nullopt);
  if (backend != at::native::ConvBackend::Mkldnn) return false;
  const auto mask = arguments[10].toBoolList();
  const bool weight_gradient = mask[1] || mask[2];
  return !weight_gradient || x.dim() == 3 || onednn_format(x, weight) == at::MemoryFormat::Contiguous;
}

}  // namespace

void add_cpu_convolutions(CpuKernels& kernels) {
  const auto add = adding_to(kernels);
  add("_slow_conv2d_forward", &slow_convolution);
  add("_slow_conv2d_backward.output_mask", &slow_convolution_backward);
  add("mkldnn_convolution", &onednn_convolution);
  add("convolution_backward", &onednn_convolution_backward, &onednn_backward_is_known);
}

}  // namespace dtk::planner
