#include <algorithm>
#include <array>
#include <type_traits>

#include "support/policies/random_networks.h"

namespace dtk::bench {
namespace {

const char* name_of(Operation operation) {
  static constexpr std::array kNames = {"linear",  "conv2d",   "batch_norm", "layer_norm",  "relu",
                                        "gelu",    "silu",     "tanh",       "dropout",     "relu_",
                                        "mul_",    "dropout_", "add",        "masked_fill", "index_select",
                                        "flatten", "module"};
  return kNames.at(static_cast<size_t>(operation));
}

const char* name_of(Segment segment) {
  static constexpr std::array kNames = {"plain", "recompute", "chain", "offload", "offload_on"};
  return kNames.at(static_cast<size_t>(segment));
}

template <class List>
std::string list_of(const List& list, const std::string& between) {
  std::string text;
  for (const auto& one : list) {
    if (!text.empty()) text += between;
    if constexpr (std::is_integral_v<std::decay_t<decltype(one)>>) {
      text += std::to_string(one);
    } else {
      text += one;
    }
  }
  return text;
}

std::string text_of(const RandomNetwork& network, const Step& step) {
  std::string text = name_of(step.operation);
  for (size_t i = 0; i < step.weights.size() && i < 2; ++i) {
    const NetworkWeight& weight = network.weights[step.weights[i]];
    text += " w" + std::to_string(step.weights[i]) + "(" + list_of(weight.sizes, ",") + ")";
    if (weight.kind == NetworkWeight::Kind::frozen) text += " frozen";
  }
  if (!step.name.empty()) text += " named";
  return text;
}

std::string text_of(const RandomNetwork& network, const RandomModule& tree) {
  std::string text = name_of(tree.segment);
  if (tree.autocast != Autocast::none) text += tree.autocast == Autocast::around ? " in bf16" : " of bf16";
  if (!tree.keep.empty()) text += " keep " + list_of(tree.keep, " ");
  text += " {";
  for (const Step& step : tree.steps) {
    const bool child = step.operation == Operation::module;
    text += "\n" + std::string(2 * (1 + std::count(tree.path.begin(), tree.path.end(), '.')), ' ');
    text += list_of(step.writes, " ") + " = ";
    text += child ? text_of(network, tree.children[step.child]) : text_of(network, step);
    text += " of " + list_of(step.reads, " ");
  }
  text += " } returns";
  for (const auto& output : tree.outputs) text += output ? " " + std::to_string(*output) : " nothing";
  return text;
}

}  // namespace

std::string text_of(const RandomNetwork& network) {
  return "input (" + list_of(network.sizes, ", ") + ")" + (network.input_gradient ? " with gradient" : "") +
         ", offload from " + std::to_string(network.offload_min_bytes) +
         " bytes: " + text_of(network, network.root);
}

}  // namespace dtk::bench
