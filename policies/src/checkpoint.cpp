#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "recomputing.h"

namespace dtk::policies {
namespace {

std::atomic<int64_t> segments{0}, recomputes{0}, early_stops{0}, dropped{0};

// Thrown by the layer that collects, through LibTorch's operator, once it has all that backward needs.
struct EarlyStop {};

using Devices = std::vector<c10::Device>;

// The CPU, and what else the inputs lie on.
Devices devices_of(const Tensors& inputs) {
  Devices devices{at::kCPU};
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || input.is_meta()) continue;
    if (std::find(devices.begin(), devices.end(), input.device()) == devices.end())
      devices.push_back(input.device());
  }
  return devices;
}

// What a computation depends on besides its tensors, as it was when the segment ran.
struct Surroundings {
  explicit Surroundings(const Devices& devices)
      : cache(at::autocast::is_autocast_cache_enabled()), path(module_path()) {
    for (const c10::Device& device : devices) {
      const c10::DeviceType type = device.type();
      autocast[type] = {at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
    }
  }

  struct Autocast {
    bool enabled;
    at::ScalarType dtype;
  };
  std::map<c10::DeviceType, Autocast> autocast;
  bool cache;
  std::string path;
};

// Re-creates them; at the end everything is as before, and the casts of this recomputation are freed, which
// would otherwise outlive the next optimizer step and be stale then. Also within a forward scope that is
// still alive, where autocast's own nesting frees nothing.
class SurroundingsScope {
 public:
  explicit SurroundingsScope(const Surroundings& s)
      : cache_(at::autocast::is_autocast_cache_enabled()), path_(s.path), grad_(true) {
    for (const auto& [device, autocast] : s.autocast) {
      autocast_.emplace_back(device, autocast.enabled, autocast.dtype);
    }
    at::autocast::set_autocast_cache_enabled(s.cache);
  }
  ~SurroundingsScope() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  SurroundingsScope(const SurroundingsScope&) = delete;
  SurroundingsScope& operator=(const SurroundingsScope&) = delete;

 private:
  const bool cache_;
  std::deque<AutocastGuard> autocast_;  // one for each type of device, so that their order is no matter
  ModulePathScope path_;
  at::AutoGradMode grad_;
  RecomputingScope recomputing_;
};

using RandomStates = std::vector<std::string>;

RandomStates random_states(const Devices& devices) {
  RandomStates states;
  for (const c10::Device& device : devices) {
    states.push_back(generator_state(at::globalContext().defaultGenerator(device)));
  }
  return states;
}

// One tensor that forward saved: what it must look like when it is made again.
struct Slot {
  at::DimVector sizes;
  at::ScalarType dtype;
  c10::Device device;
  bool needed = true;                            // autograd still holds it
  std::unique_ptr<SavedTensor> value = nullptr;  // between recomputation and use
};

std::string describe(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  return c10::str(sizes, " ", dtype, " on ", device);
}

}  // namespace

// A segment: what it takes to run it again. Shared by the chain while forward runs and by every saved tensor.
struct CheckpointChain::Frame {
  // An input of a call: number `index` of what call `call` returned, or of the segment's own inputs.
  struct Source {
    static constexpr size_t kOutside = SIZE_MAX;
    size_t call = kOutside;
    size_t index = 0;
  };
  struct Input {
    std::unique_ptr<SavedTensor> tensor;  // kept by the layers below this segment
    bool requires_grad;
  };
  struct Output {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    int64_t version;       // as this segment's calls left it: what they change in place they change again
    bool changed = false;  // by others, since
  };
  struct Call {
    std::string path;
    SubtreeFn fn;
    std::vector<Source> sources;
    Devices devices;
    Surroundings surroundings;
    RandomStates random;  // of the devices before the call; empty if the call drew nothing
    std::vector<Output> outputs;
  };

  explicit Frame(SavedTensorStack under) : below(std::move(under)) {}
  Source source_of(const std::string& path, const at::Tensor& input);
  template <class Visit>
  void each_output(Visit visit);
  at::Tensor take(size_t index);
  void recompute();
  void run_calls(const Tensors& outside);
  void collect(size_t index, const at::Tensor& tensor, const SavedTensorStack& keep_by);
  [[noreturn]] void mismatch(const std::string& what) const;

  const SavedTensorStack below;
  std::vector<Call> calls;
  std::vector<Input> inputs;
  std::vector<Slot> slots;
  std::recursive_mutex mutex;  // backward may unpack on several threads; nested segments on one
};

// Forward: counts what autograd wants to save and keeps none of it.
class CheckpointChain::DropLayer final : public SavedTensorLayer {
 public:
  explicit DropLayer(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  bool keeps() const override { return false; }

  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack&) override {
    std::lock_guard lock(frame_->mutex);
    frame_->slots.push_back({at::DimVector(tensor.sizes()), tensor.scalar_type(), tensor.device()});
    ++dropped;
    return std::make_unique<Dropped>(frame_, frame_->slots.size() - 1);
  }

 private:
  class Dropped final : public SavedTensor {
   public:
    Dropped(std::shared_ptr<Frame> frame, size_t index) : frame_(std::move(frame)), index_(index) {}
    ~Dropped() override {
      std::lock_guard lock(frame_->mutex);
      frame_->slots[index_].needed = false;
      frame_->slots[index_].value.reset();
    }
    at::Tensor unpack() override { return frame_->take(index_); }

   private:
    const std::shared_ptr<Frame> frame_;
    const size_t index_;
  };
  const std::shared_ptr<Frame> frame_;
};

// Recomputation: keeps what is still needed, in the order of forward.
class CheckpointChain::CollectLayer final : public SavedTensorLayer {
 public:
  explicit CollectLayer(Frame& frame) : frame_(frame) {}
  size_t seen() const { return seen_; }

  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
    frame_.collect(seen_++, tensor, below);
    if (seen_ == frame_.slots.size()) throw EarlyStop{};
    return std::make_unique<Unusable>();
  }

 private:
  struct Unusable final : SavedTensor {
    at::Tensor unpack() override {
      TORCH_CHECK(false, "checkpoint: backward ran inside a segment that is being recomputed");
    }
  };
  Frame& frame_;
  size_t seen_ = 0;
};

CheckpointCounts checkpoint_counts() {
  return {segments, recomputes, early_stops, dropped};
}

// ---- forward ----

CheckpointChain::CheckpointChain() = default;
CheckpointChain::~CheckpointChain() = default;

int64_t CheckpointChain::tensors_dropped() const {
  return frame_ == nullptr ? 0 : static_cast<int64_t>(frame_->slots.size());
}

Tensors CheckpointChain::append(std::string_view path, const SubtreeFn& fn, Tensors&& inputs) {
  if (!at::GradMode::is_enabled()) return fn(std::move(inputs));
  if (frame_ == nullptr) {
    frame_ = std::make_shared<Frame>(SavedTensorStack::current());
    ++segments;
  }
  frame_->each_output([](Frame::Output& output, int64_t now) { output.changed |= now != output.version; });
  std::vector<Frame::Source> sources;
  {
    const ModulePathScope within(path);  // what is kept for this sub-tree is counted as its own
    for (const at::Tensor& input : inputs) {
      sources.push_back(frame_->source_of(std::string(path), input));
    }
  }
  const Devices devices = devices_of(inputs);
  RandomStates before = random_states(devices);
  frame_->calls.push_back(
      {std::string(path), fn, std::move(sources), devices, Surroundings(devices), {}, {}});
  Tensors outputs;
  {
    SavedTensorScope scope(std::make_shared<DropLayer>(frame_));
    outputs = fn(std::move(inputs));
  }
  // Recomputation makes its own. Kept by autocast until the forward pass ends, those of all segments would
  // add up to half of the weights' bytes.
  at::autocast::clear_cache();
  frame_->each_output([](Frame::Output& output, int64_t now) {
    if (!output.changed) output.version = now;
  });
  Frame::Call& call = frame_->calls.back();
  if (random_states(devices) != before) call.random = std::move(before);
  for (const at::Tensor& output : outputs) {
    call.outputs.push_back({decltype(Frame::Output::tensor)(output.getIntrusivePtr()),
                            output.defined() ? version_of(output) : 0});
  }
  return outputs;
}

template <class Visit>
void CheckpointChain::Frame::each_output(Visit visit) {
  for (Call& call : calls) {
    for (Output& output : call.outputs) {
      const at::Tensor tensor(output.tensor.lock());
      if (tensor.defined()) visit(output, version_of(tensor));
    }
  }
}

CheckpointChain::Frame::Source CheckpointChain::Frame::source_of(const std::string& path,
                                                                 const at::Tensor& input) {
  for (size_t c = 0; input.defined() && c < calls.size(); ++c) {
    for (size_t i = 0; i < calls[c].outputs.size(); ++i) {
      const Output& output = calls[c].outputs[i];
      if (output.tensor._unsafe_get_target() != input.unsafeGetTensorImpl()) continue;
      TORCH_CHECK(!output.changed, "checkpoint ", path, ": its input ", input.sizes(), ", which ",
                  calls[c].path, " returned, was changed in place between sub-trees (version ",
                  output.version, " then, ", version_of(input),
                  " now); they are one segment, whose recomputation would leave that change out; make it out "
                  "of place or within a sub-tree, or let a segment begin with ",
                  path);
      return {c, i};
    }
  }
  at::NoGradGuard no_grad;
  inputs.push_back(
      {input.defined() ? below.pack(input.detach()) : nullptr, input.defined() && input.requires_grad()});
  return {Source::kOutside, inputs.size() - 1};
}

Tensors checkpoint(std::string_view path, const SubtreeFn& fn, Tensors&& inputs) {
  CheckpointChain chain;
  return chain.append(path, fn, std::move(inputs));
}

// ---- backward ----

at::Tensor CheckpointChain::Frame::take(size_t index) {
  std::lock_guard lock(mutex);
  if (slots[index].value == nullptr) recompute();
  const std::unique_ptr<SavedTensor> value = std::move(slots[index].value);
  return value->unpack();
}

void CheckpointChain::Frame::recompute() {
  ++recomputes;
  Tensors outside;
  for (const Input& input : inputs) {
    outside.push_back(input.tensor == nullptr ? at::Tensor() : input.tensor->unpack().detach());
    if (input.requires_grad) outside.back().requires_grad_(true);
  }
  const auto collector = std::make_shared<CollectLayer>(*this);
  {
    // Not `below`: an outer segment's layer there would drop again what is being made.
    const SavedTensorScope keepers(below.keepers());
    const SavedTensorScope scope(collector);
    try {
      run_calls(outside);
    } catch (const EarlyStop&) {
      ++early_stops;
    }
  }
  if (collector->seen() != slots.size()) {
    mismatch(c10::str("saved ", collector->seen(), " tensors, forward saved ", slots.size()));
  }
}

void CheckpointChain::Frame::run_calls(const Tensors& outside) {
  std::vector<Tensors> results;
  for (const Call& call : calls) {
    Tensors in;
    for (const Source& source : call.sources) {
      in.push_back(source.call == Source::kOutside ? outside[source.index]
                                                   : results[source.call][source.index]);
    }
    const SurroundingsScope surroundings(call.surroundings);
    RandomStates random = call.random;
    std::deque<DefaultGeneratorScope> generators;  // after `random`, into which they write at their end
    for (size_t i = 0; i < random.size(); ++i) generators.emplace_back(call.devices[i], random[i]);
    results.push_back(call.fn(std::move(in)));
  }
}

void CheckpointChain::Frame::collect(size_t index, const at::Tensor& tensor,
                                     const SavedTensorStack& keep_by) {
  if (index >= slots.size()) mismatch(c10::str("saves more than the ", slots.size(), " tensors of forward"));
  Slot& slot = slots[index];
  if (tensor.sizes() != at::IntArrayRef(slot.sizes) || tensor.scalar_type() != slot.dtype ||
      tensor.device() != slot.device) {
    mismatch(c10::str("saved tensor number ", index, " as ",
                      describe(tensor.sizes(), tensor.scalar_type(), tensor.device()), ", forward saved ",
                      describe(slot.sizes, slot.dtype, slot.device)));
  }
  if (slot.needed) slot.value = keep_by.pack(tensor);
}

void CheckpointChain::Frame::mismatch(const std::string& what) const {
  TORCH_CHECK(
      false, "checkpoint ", calls.front().path, ": the recomputation ", what,
      "; a segment must compute the same again: look for state that changed between forward and backward "
      "(a counter, a cache, a flag, a global) or for a branch on it");
}

}  // namespace dtk::policies
