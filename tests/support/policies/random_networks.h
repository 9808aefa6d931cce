// Random small networks of which parts run as segments: for trying segments against a plain run.
//
// A network is a tree of modules. Each computes in slots: numbered values, its inputs first. What a step
// reads for the last time is let go of there, as well written code does it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dtk::bench {

enum class Operation {
  linear,      // weight, or weight and bias
  conv2d,      // likewise; keeps height and width
  batch_norm,  // weight, bias, running mean, running variance, counter; in training
  layer_norm,  // weight, bias; over the last dimension
  relu,
  gelu,
  silu,
  tanh,
  dropout,
  relu_in_place,
  scale_in_place,
  dropout_in_place,
  add,           // two values
  masked_fill,   // a value and a mask of samples
  index_select,  // a value and indices of samples
  flatten,       // (N, C, H, W) to (N, C * H * W)
  module
};

/// One operator, or a module's call.
struct Step {
  Operation operation;
  std::vector<size_t> reads, writes = {};  // slots; may have none to write to: the result is not used
  std::vector<size_t> weights = {};        // into RandomNetwork::weights
  std::vector<size_t> dead = {};           // slots that nothing reads from here on
  double number = 0;                       // of dropout: its probability
  std::string name = "";                   // under which the result may be kept
  size_t child = 0;                        // of a module: into RandomModule::children
};

/// How a module runs where the network is not run plainly.
enum class Segment {
  none,
  recomputed,
  chained,       // its children are one recomputed segment
  offloaded,     // a segment of its own in host memory
  offloaded_on,  // joins the latest offloaded segment
};

/// bf16 autocast of a module; what it returns is fp32.
enum class Autocast { none, around, within };  // its segment

struct RandomModule {
  std::string path;
  Segment segment = Segment::none;
  std::vector<std::string> keep = {};  // names and operators, of a recomputed one
  Autocast autocast = Autocast::none;
  std::vector<Step> steps = {};
  std::vector<std::optional<size_t>> outputs = {};  // slots; nothing: undefined
  std::vector<RandomModule> children = {};
};

struct NetworkWeight {
  enum class Kind { trained, frozen, running_mean, running_variance, counter } kind;
  std::vector<int64_t> sizes = {};
};

struct RandomNetwork {
  uint64_t seed = 0;  // of its values
  std::vector<int64_t>
      sizes;  // of its first input, (N, F) or (N, C, H, W); the others: (N) mask, (N) indices
  bool input_gradient = false;
  int64_t offload_min_bytes = 0;
  std::vector<NetworkWeight> weights;
  RandomModule root;               // of slots 0 to 2
  std::set<std::string> features;  // what it has, for counting
};

/// Network number `index` of `seed`; a pure function of the two.
RandomNetwork random_network(uint64_t seed, uint64_t index);

/// "net[(8, 6, 5, 5) conv2d relu recompute(...)]"
std::string text_of(const RandomNetwork& network);

}  // namespace dtk::bench
