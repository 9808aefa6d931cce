#include "forum_cnn/network.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

namespace examples {
namespace {

using namespace dtk::policies;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Linear;

// Stages: convolution 1, ReLU 1, convolution 2, ..., ReLU 3, head. Segments by their first stage, each with
// the one behind its last.
std::map<size_t, size_t> segments_of(Variant variant) {
  switch (variant) {
    case Variant::conv_relu:
      return {{0, 2}, {2, 4}, {4, 6}, {6, 7}};
    case Variant::one_block:
      return {{2, 6}};
    case Variant::all_conv:
      return {{0, 6}};
    default:
      return {};
  }
}
constexpr size_t kFirstPerOperator = 2;

// "conv2..relu3"
std::string segment_name(size_t begin, size_t end) {
  const auto number = [](size_t stage) { return std::to_string(stage / 2 + 1); };
  return end % 2 == 0 ? "conv" + number(begin) + "..relu" + number(end - 1) : "head";
}

Tensors run_plainly(std::string_view, const ModuleFn& fn, Tensors&& inputs) {
  return fn(std::move(inputs));
}

Tensors run_checkpointed(std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
  return checkpoint(path, fn, std::move(inputs));
}

// One operator of one tensor.
at::Tensor one_tensor(const Run& run, const std::string& name,
                      const std::function<at::Tensor(at::Tensor)>& fn, at::Tensor x) {
  const ModulePathScope within(name);
  const ModuleFn of_list = [fn](Tensors&& inputs) { return Tensors{fn(std::move(inputs.front()))}; };
  Tensors inputs;
  inputs.push_back(std::move(x));
  return run(name, of_list, std::move(inputs)).front();
}

template <class Layer>
std::function<at::Tensor(at::Tensor)> forward_of(Layer layer) {
  return [layer](const at::Tensor& x) mutable { return layer->forward(x); };
}

}  // namespace

std::vector<int64_t> NetworkShape::result() const {
  return {input[0], head == Head::one ? outputs : 3 * outputs};
}

ForumNet::ForumNet(const NetworkShape& shape) {
  int64_t from = shape.input[1];
  for (size_t i = 0; i < kConvolutions; ++i) {
    const std::string name = "conv" + std::to_string(i + 1);
    const OwnerScope owner(Category::parameters, name);
    const Conv2dOptions options = Conv2dOptions(from, shape.channels[i], 3).padding(1);
    convolutions_.push_back(register_module(name, Conv2d(options)));
    from = shape.channels[i];
  }
  const int64_t features = from * shape.input[2] * shape.input[3];
  const size_t count = shape.head == Head::one ? 1 : 3;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = count == 1 ? "fc" : "fc" + std::to_string(i + 1);
    const OwnerScope owner(Category::parameters, name);
    linear_.push_back(register_module(name, Linear(features, shape.outputs)));
  }
}

at::Tensor ForumNet::forward(at::Tensor x, Variant variant) {
  return forward(std::move(x), variant,
                 variant == Variant::plain ? Run(&run_plainly) : Run(&run_checkpointed));
}

at::Tensor ForumNet::forward(at::Tensor x, Variant variant, const Run& run) {
  const std::map<size_t, size_t> segments = segments_of(variant);
  size_t i = 0;
  while (i < kStages) {
    const auto begun = segments.find(i);
    if (begun != segments.end()) {
      x = segment(i, begun->second, std::move(x), run);
      i = begun->second;
    } else {
      const bool alone = variant == Variant::plain || (variant == Variant::per_op && i >= kFirstPerOperator);
      x = stage(i++, std::move(x), alone ? run : Run(&run_plainly));
    }
  }
  return x;
}

at::Tensor ForumNet::segment(size_t begin, size_t end, at::Tensor x, const Run& run) {
  const auto stages = [this, begin, end](at::Tensor in) {
    for (size_t i = begin; i < end; ++i) in = stage(i, std::move(in), run_plainly);
    return in;
  };
  return one_tensor(run, segment_name(begin, end), stages, std::move(x));
}

at::Tensor ForumNet::stage(size_t index, at::Tensor x, const Run& run_operator) {
  if (index == 2 * kConvolutions) return head(std::move(x), run_operator);
  const std::string number = std::to_string(index / 2 + 1);
  if (index % 2 == 0)
    return one_tensor(run_operator, "conv" + number, forward_of(convolutions_[index / 2]), std::move(x));
  return one_tensor(
      run_operator, "relu" + number, [](const at::Tensor& in) { return at::relu(in); }, std::move(x));
}

at::Tensor ForumNet::head(at::Tensor x, const Run& run_operator) {
  const at::Tensor flat = one_tensor(
      run_operator, "flatten", [](const at::Tensor& in) { return in.flatten(1); }, std::move(x));
  if (linear_.size() == 1) return one_tensor(run_operator, "fc", forward_of(linear_[0]), flat);
  at::Tensor first = one_tensor(run_operator, "fc1", forward_of(linear_[0]), flat);
  Tensors parts{one_tensor(
      run_operator, "sigmoid", [](const at::Tensor& in) { return at::sigmoid(in); }, std::move(first))};
  parts.push_back(one_tensor(run_operator, "fc2", forward_of(linear_[1]), flat));
  parts.push_back(one_tensor(run_operator, "fc3", forward_of(linear_[2]), flat));
  const ModulePathScope within("cat");
  const ModuleFn cat = [](Tensors&& inputs) { return Tensors{at::cat(inputs, 1)}; };
  return run_operator("cat", cat, std::move(parts)).front();
}

}  // namespace examples
