#include "support/policies/random_networks.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <random>
#include <utility>

namespace dtk::bench {
namespace {

using Sizes = std::vector<int64_t>;

// What the maker knows of a value.
struct Slot {
  // gone: changed in place to another
  enum class Kind { value, mask, indices, absent, gone } kind = Kind::value;
  Sizes sizes = {};
  bool gradient = false;  // needs one
  // The step that made it here saves no result for backward, nobody reads it and nobody keeps it.
  bool may_change = false;
};

// What a module lies in.
struct AmbientState {
  int depth = 0;
  bool recomputed = false, offloaded = false, autocast = false;
  std::vector<std::string> keep = {};  // of the innermost segment
};

struct Made {
  RandomModule tree;
  std::vector<Slot> outputs;
};

class Maker {
 public:
  Maker(uint64_t seed, uint64_t index) : random_(seed * 0x9e3779b97f4a7c15U + index) {}

  RandomNetwork make() {
    network_.seed = random_() >> 1;
    network_.input_gradient = chance(2);
    network_.offload_min_bytes = one_of<int64_t>({0, 0, 256, 2048});
    const bool planes = chance(2);
    const int64_t samples = planes ? between(2, 6) : between(8, 64), side = between(4, 8);
    widths_ = {between(4, 16), between(4, 32)};
    network_.sizes = planes ? Sizes{samples, width(), side, side} : Sizes{samples, width()};
    root();
    if (!network_.input_gradient) feature("input without gradient");
    return std::move(network_);
  }

 private:
  // ---- draws
  uint64_t draw(uint64_t choices) { return random_() % choices; }
  int64_t between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(draw(static_cast<uint64_t>(max - min + 1)));
  }
  bool chance(uint64_t one_in) { return draw(one_in) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(draw(choices.size())));
  }
  int64_t width() { return widths_[draw(2)]; }
  void feature(const std::string& name) { network_.features.insert(name); }

  // ---- modules

  // A module in the making.
  struct Making {
    RandomModule tree;
    std::vector<Slot> slots;
    AmbientState within;
    size_t main = 0;  // the slot to go on with
  };

  void root() {
    const Slot value{Slot::Kind::value, network_.sizes, network_.input_gradient};
    Making root{{"net"}, {value, {Slot::Kind::mask}, {Slot::Kind::indices}}, {}};
    const int64_t count = between(3, 6);
    for (int64_t i = 0; i < count; ++i) {
      if (chance(4))
        operation(root);
      else
        child(root);
    }
    dense(root, /*never_frozen=*/true);
    root.tree.outputs = {root.main};
    if (const auto other = other_value(root)) root.tree.outputs.push_back(*other);
    find_dead(root);
    network_.root = std::move(root.tree);
  }

  Made module(const std::string& path, const AmbientState& outer, bool chained, std::vector<Slot> inputs) {
    const size_t given = inputs.size();
    Making making{{path}, std::move(inputs), outer};
    ++making.within.depth;
    if (!chained) choose_segment(making);
    choose_autocast(making);
    const bool of_children = making.tree.segment == Segment::chained;
    const int64_t count = of_children ? between(2, 4) : between(2, 6);
    for (int64_t i = 0; i < count; ++i) {
      const bool deeper = making.within.depth < 4 && chance(making.within.depth == 1 ? 4 : 6);
      if (of_children || deeper)
        child(making, of_children);
      else
        operation(making);
    }
    return finish(making, given);
  }

  Made finish(Making& making, size_t given) {
    RandomModule& tree = making.tree;
    tree.outputs = {making.main};
    if (chance(4)) {
      const auto other = other_value(making);
      if (other && *other >= given) {
        tree.outputs.push_back(*other);
        feature("several outputs");
      }
    }
    if (chance(6)) {
      tree.outputs.insert(tree.outputs.begin() + between(0, 1), std::nullopt);
      feature("undefined output");
    }
    Made made;
    for (const auto& output : tree.outputs)
      made.outputs.push_back(output ? making.slots[*output] : Slot{Slot::Kind::absent});
    find_dead(making);
    made.tree = std::move(tree);
    return made;
  }

  void choose_segment(Making& making) {
    AmbientState& within = making.within;
    const uint64_t kind = draw(20);
    if (kind < 3) return;
    Segment& segment = making.tree.segment;
    segment = kind < 12                                          ? Segment::recomputed
              : kind < 15 && making.within.depth < 3             ? Segment::chained
              : kind < 19 || !network_.features.count("offload") ? Segment::offloaded
                                                                 : Segment::offloaded_on;
    const bool offloads = segment == Segment::offloaded || segment == Segment::offloaded_on;
    if (offloads) feature(within.recomputed ? "offload within recompute" : "offload");
    if (offloads && within.offloaded) feature("offload within offload");
    if (!offloads) feature(within.recomputed ? "recompute within recompute" : "recompute");
    if (!offloads && within.offloaded) feature("recompute within offload");
    if (segment == Segment::chained) feature("chain");
    within.recomputed |= !offloads;
    within.offloaded |= offloads;
    if (!offloads) within.keep.clear();
    if (segment == Segment::recomputed && chance(3)) choose_kept(making);
  }

  void choose_kept(Making& making) {
    std::vector<std::string>& keep = making.tree.keep;
    if (chance(2)) {
      keep = {
          one_of<const char*>({"aten::addmm", "aten::convolution", "aten::gelu", "aten::silu", "aten::tanh",
                               "aten::native_batch_norm", "aten::native_layer_norm", "aten::mul"})};
      if (chance(2) && keep.front() != "aten::addmm") keep.push_back("aten::addmm");
      feature("kept operators");
    }
    if (keep.empty() || chance(3)) {
      keep.push_back("result");
      feature("kept names");
    }
    making.within.keep = keep;
  }

  void choose_autocast(Making& making) {
    if (making.within.autocast || !chance(7)) return;
    making.tree.autocast = chance(2) ? Autocast::around : Autocast::within;
    making.within.autocast = true;
    feature("bf16 autocast");
  }

  void child(Making& making, bool chained = false) {
    Step step{Operation::module, {making.main}};
    for (size_t i = 0; i < making.slots.size(); ++i) {
      const Slot::Kind kind = making.slots[i].kind;
      const bool value = kind == Slot::Kind::value;
      if (i == making.main || kind == Slot::Kind::gone || !chance(value ? 5 : 2)) continue;
      if (value) feature("skip into a module");
      if (kind == Slot::Kind::absent) feature("undefined input");
      step.reads.push_back(i);
    }
    std::vector<Slot> inputs;
    for (const size_t slot : step.reads) {
      making.slots[slot].may_change = false;
      inputs.push_back(making.slots[slot]);
    }
    step.child = making.tree.children.size();
    const std::string path = making.tree.path + "." + std::to_string(step.child);
    const bool gradient =
        std::any_of(inputs.begin(), inputs.end(), [](const Slot& one) { return one.gradient; });
    Made made = module(path, making.within, chained, std::move(inputs));
    if (!gradient && made.tree.segment != Segment::none) feature("segment of inputs without gradient");
    for (size_t i = 0; i < made.outputs.size(); ++i) {
      Slot& output = made.outputs[i];
      output.may_change = false;
      if (made.tree.outputs[i] && i == first_defined(made.tree)) making.main = making.slots.size();
      step.writes.push_back(making.slots.size());
      making.slots.push_back(std::move(output));
    }
    making.tree.children.push_back(std::move(made.tree));
    making.tree.steps.push_back(std::move(step));
  }

  static size_t first_defined(const RandomModule& tree) { return tree.outputs.front() ? 0 : 1; }

  // ---- operators

  void operation(Making& making) {
    const uint64_t kind = draw(16);
    if (kind < 4) return dense(making);
    if (kind < 6) return batch_norm(making);
    if (kind < 7) return layer_norm(making);
    if (kind < 8) return dropout(making);
    if (kind < 10) return in_place(making);
    if (kind < 12) return add(making);
    if (kind < 13) return of_samples(making);
    kind < 14 ? flatten(making) : activation(making);
  }

  // Goes on with what the step makes.
  void put(Making& making, Step step, Sizes sizes, bool may_change) {
    const bool named = step.operation != Operation::flatten && step.name.empty() && chance(2);
    if (named && !is_in_place(step.operation)) step.name = "result";
    making.main = making.slots.size();
    step.writes = {making.main};
    for (const size_t slot : step.reads) making.slots[slot].may_change = false;
    const bool gradient = needs_gradient(making, step);
    making.slots.push_back(
        {Slot::Kind::value, std::move(sizes), gradient, may_change && making.within.keep.empty()});
    making.tree.steps.push_back(std::move(step));
  }
  bool needs_gradient(const Making& making, const Step& step) const {
    const auto trained = [&](size_t one) {
      return network_.weights[one].kind == NetworkWeight::Kind::trained;
    };
    return std::any_of(step.weights.begin(), step.weights.end(), trained) ||
           std::any_of(step.reads.begin(), step.reads.end(),
                       [&](size_t slot) { return making.slots[slot].gradient; });
  }
  static bool is_in_place(Operation operation) {
    return operation == Operation::relu_in_place || operation == Operation::scale_in_place ||
           operation == Operation::dropout_in_place;
  }
  const Sizes& sizes(const Making& making) const { return making.slots[making.main].sizes; }

  size_t weight(Sizes sizes, NetworkWeight::Kind kind) {
    network_.weights.push_back({kind, std::move(sizes)});
    return network_.weights.size() - 1;
  }
  // Several uses of a cast weight would be summed in bf16 in a plain run and in fp32 in segments.
  size_t trained(const Making& making, const Sizes& sizes, bool never_frozen = false) {
    if (!making.within.autocast && !never_frozen && sizes.size() > 1 && chance(4)) {
      std::vector<size_t> alike;
      for (const size_t other : shareable_) {
        if (network_.weights[other].sizes == sizes) alike.push_back(other);
      }
      if (!alike.empty()) {
        feature("shared weight");
        return alike[draw(alike.size())];
      }
    }
    const bool frozen = !never_frozen && chance(6);
    if (frozen) feature("frozen weight");
    const size_t made = weight(sizes, frozen ? NetworkWeight::Kind::frozen : NetworkWeight::Kind::trained);
    if (!making.within.autocast && !never_frozen && sizes.size() > 1) shareable_.push_back(made);
    return made;
  }

  void dense(Making& making, bool never_frozen = false) {
    const Sizes from = sizes(making);
    const int64_t wide = width();
    const bool plane = from.size() == 4;
    const int64_t points = plane && chance(2) ? 3 : 1;
    Step step{plane ? Operation::conv2d : Operation::linear, {making.main}};
    step.weights = {
        trained(making, plane ? Sizes{wide, from[1], points, points} : Sizes{wide, from[1]}, never_frozen)};
    if (!chance(4)) step.weights.push_back(trained(making, {wide}));
    feature(plane ? "conv2d" : "linear");
    Sizes to = from;
    to[1] = wide;
    put(making, std::move(step), std::move(to), true);
  }

  void batch_norm(Making& making) {
    const Sizes of = {sizes(making)[1]};
    Step step{Operation::batch_norm, {making.main}};
    step.weights = {trained(making, of), trained(making, of), weight(of, NetworkWeight::Kind::running_mean),
                    weight(of, NetworkWeight::Kind::running_variance),
                    weight({}, NetworkWeight::Kind::counter)};
    feature("batch norm");
    if (!making.slots[making.main].gradient) feature("batch norm of a value without gradient");
    put(making, std::move(step), sizes(making), true);
  }

  void layer_norm(Making& making) {
    const Sizes of = {sizes(making).back()};
    Step step{Operation::layer_norm, {making.main}};
    step.weights = {trained(making, of), trained(making, of)};
    feature("layer norm");
    put(making, std::move(step), sizes(making), true);
  }

  void dropout(Making& making) {
    Step step{Operation::dropout, {making.main}};
    step.number = one_of({0.1, 0.5});
    feature("dropout");
    put(making, std::move(step), sizes(making), false);
  }

  void activation(Making& making) {
    const auto which = one_of({Operation::relu, Operation::gelu, Operation::silu, Operation::tanh});
    put(making, {which, {making.main}}, sizes(making), false);
  }

  void in_place(Making& making) {
    if (!making.slots[making.main].may_change) return activation(making);
    const size_t changed = making.main;
    Step step{one_of({Operation::relu_in_place, Operation::scale_in_place, Operation::dropout_in_place}),
              {changed}};
    step.number = 0.25;
    feature("in place");
    put(making, std::move(step), sizes(making), false);
    making.slots[changed] = {Slot::Kind::gone};
  }

  void add(Making& making) {
    std::vector<size_t> alike;
    for (size_t i = 0; i < making.slots.size(); ++i) {
      const Slot& slot = making.slots[i];
      if (i != making.main && slot.kind == Slot::Kind::value && slot.sizes == sizes(making))
        alike.push_back(i);
    }
    if (alike.empty()) return dense(making);
    feature("residual");
    put(making, {Operation::add, {making.main, alike[draw(alike.size())]}}, sizes(making), true);
  }

  void of_samples(Making& making) {
    for (size_t i = 0; i < making.slots.size(); ++i) {
      const Slot::Kind kind = making.slots[i].kind;
      if (kind != Slot::Kind::mask && kind != Slot::Kind::indices) continue;
      const bool mask = kind == Slot::Kind::mask;
      // The kernel of its gradient in bf16 takes memory that no plan knows.
      if (!mask && making.within.autocast) continue;
      feature(mask ? "mask" : "indices");
      return put(making, {mask ? Operation::masked_fill : Operation::index_select, {making.main, i}},
                 sizes(making), false);
    }
    activation(making);
  }

  void flatten(Making& making) {
    const Sizes from = sizes(making);
    if (from.size() != 4) return layer_norm(making);
    put(making, {Operation::flatten, {making.main}}, {from[0], from[1] * from[2] * from[3]}, false);
  }

  std::optional<size_t> other_value(const Making& making) {
    std::vector<size_t> others;
    for (size_t i = 0; i < making.slots.size(); ++i) {
      if (i != making.main && making.slots[i].kind == Slot::Kind::value) others.push_back(i);
    }
    if (others.empty()) return std::nullopt;
    return others[draw(others.size())];
  }

  // Slots whose last reader is behind them, by step.
  static void find_dead(Making& making) {
    std::vector<size_t> last(making.slots.size(), 0);
    std::vector<Step>& steps = making.tree.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const size_t slot : steps[i].reads) last[slot] = i;
      for (const size_t slot : steps[i].writes) last[slot] = i;
    }
    for (size_t slot = 0; slot < last.size(); ++slot) {
      const auto& outputs = making.tree.outputs;
      const bool returned = std::find(outputs.begin(), outputs.end(), slot) != outputs.end();
      if (!returned) steps[last[slot]].dead.push_back(slot);
    }
  }

  std::mt19937_64 random_;
  RandomNetwork network_;
  std::array<int64_t, 2> widths_{};
  std::vector<size_t> shareable_;  // weights
};

}  // namespace

RandomNetwork random_network(uint64_t seed, uint64_t index) {
  return Maker(seed, index).make();
}

}  // namespace dtk::bench
