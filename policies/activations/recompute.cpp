#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>

#include "activations/segment.h"

namespace dtk::policies {
namespace {

// Thrown by the layer that collects, through LibTorch's operator, once it has all that backward needs.
struct EarlyStop {};

constexpr const char* kCountCause =
    "look for a branch on a flag, such as training mode, and for work done in the first call only";

std::string cause_of(const TensorForm& now, const TensorForm& then) {
  const std::string between = " that changed between forward and backward";
  if (now.device != then.device) return "look for a move of the module or of its buffers to another device";
  if (now.dtype != then.dtype) return "look for a cast by a flag or by a default dtype" + between;
  size_t differing = 0, dimension = 0;
  for (size_t i = 0; i < now.sizes.size() && now.sizes.size() == then.sizes.size(); ++i) {
    if (now.sizes[i] == then.sizes[i]) continue;
    ++differing;
    dimension = i;
  }
  if (differing == 1 && now.sizes[dimension] > then.sizes[dimension]) {
    return "dimension " + std::to_string(dimension) +
           " grew, as that of a cache which each call appends to: switch such a cache off in training, or "
           "leave this module out of the segments; else look for a counter or a flag" +
           between;
  }
  return "look for state (a counter, a cache, a flag, a global)" + between + ", and for branches on it";
}

}  // namespace

std::string TensorForm::text() const {
  return c10::str(at::IntArrayRef(sizes), " ", dtype, " on ", device);
}

void check_read(const std::string& path, bool weight, const at::Tensor& tensor, int64_t then) {
  const int64_t now = version_of(tensor);
  TORCH_CHECK(now == then, "checkpoint ", path, ": ", weight ? "its parameter " : "a tensor that it reads, ",
              TensorForm(tensor).text(), weight ? "" : ",",
              " was changed in place between forward and backward (version ", then, " then, ", now,
              " now), so backward would not compute with what forward did; change it after backward");
}

// Keeps what is still needed, in the order of forward.
class CheckpointSegment::CollectLayer final : public SavedTensorLayer {
 public:
  explicit CollectLayer(Frame& frame) : frame_(frame), end_(frame.slots.size()) {
    while (end_ > 0 && !frame.slots[end_ - 1].needed) --end_;
    stops_ = !frame.runs_to_end && !(frame.short_tail && end_ == frame.slots.size());
  }
  size_t seen() const { return seen_; }
  size_t end() const { return end_; }

  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
    frame_.collect(seen_++, tensor, below);
    if (seen_ == end_ && stops_) throw EarlyStop{};
    return std::make_unique<Unusable>();
  }

 private:
  struct Unusable final : SavedTensor {
    at::Tensor unpack() override {
      TORCH_CHECK(false, "checkpoint: backward ran inside a segment that is being recomputed");
    }
  };
  Frame& frame_;
  size_t end_;  // behind the last that is needed
  bool stops_;
  size_t seen_ = 0;
};

void CheckpointSegment::Frame::check_forward_ended() const {
  TORCH_CHECK(
      in_forward == nullptr, "checkpoint ", calls.back().path,
      ": backward ran inside the segment, whose forward pass has not ended; take gradients outside of "
      "segments, or leave this module out of them");
}

at::Tensor CheckpointSegment::Frame::take(size_t index) {
  std::lock_guard lock(mutex);
  check_forward_ended();
  if (slots[index].value == nullptr) recompute();
  const std::unique_ptr<SavedTensor> value = std::move(slots[index].value);
  return value->unpack();
}

void CheckpointSegment::Frame::recompute() {
  ++checkpoint_counters().recomputes;
  try {
    recompute_into(std::make_shared<CollectLayer>(*this));
  } catch (...) {
    for (Slot& slot : slots) slot.value.reset();
    throw;
  }
}

void CheckpointSegment::Frame::recompute_into(const std::shared_ptr<CollectLayer>& collector) {
  OutsideTensors outside;
  for (const Input& input : inputs) {
    outside.push_back(input.tensor == nullptr ? at::Tensor() : input.tensor->unpack().tensor_data());
    if (input.requires_grad) outside.back().requires_grad_(true);
  }
  try {
    // Not `below`: an outer segment's layer there would drop again what is being made.
    const SavedTensorScope scope(collector, below.keepers());
    run_calls(outside);
  } catch (const EarlyStop&) {
    ++checkpoint_counters().early_stops;
  }
  if (collector->seen() < collector->end()) {
    const Slot& missing = slots[collector->seen()];
    mismatch(calls[missing.call].path,
             c10::str("saved ", collector->seen(), " tensors, forward saved ", slots.size(),
                      ", the first that is missing ", missing.form.text()),
             kCountCause);
  }
}

void CheckpointSegment::Frame::run_calls(const OutsideTensors& outside) {
  c10::SmallVector<Tensors, 1> results;
  for (const Call& call : calls) {
    Tensors in;
    in.reserve(call.sources.size());
    for (const Source& source : call.sources) {
      in.push_back(source.call == Source::kOutside ? outside[source.index]
                                                   : results[source.call][source.index]);
    }
    const AmbientStateGuard ambient(call.ambient);
    const MutationGuard state(call.state, call.statistics);
    std::optional<RandomStatesScope> random;
    if (call.random != nullptr) random.emplace(*call.random, call.devices);
    const ReplayScope kept(call.kept, call.path);
    nodes_before_call = at::sequence_number::peek();
    results.push_back(call.fn(std::move(in)));
    check_outputs(call, results.back());
  }
}

void CheckpointSegment::Frame::check_outputs(const Call& call, const Tensors& outputs) const {
  if (outputs.size() != call.outputs.size()) {
    mismatch(call.path,
             c10::str("returned ", outputs.size(), " tensors, forward returned ", call.outputs.size()),
             kCountCause);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::optional<TensorForm>& then = call.outputs[i].form;
    if (then.has_value() != outputs[i].defined()) {
      mismatch(call.path,
               c10::str("returned ", then ? "no tensor" : "a tensor", " as number ", i, ", forward returned ",
                        then ? then->text() : "none"),
               kCountCause);
    }
    if (!then) continue;
    const TensorForm now(outputs[i]);
    if (now == *then) continue;
    mismatch(call.path,
             c10::str("returned tensor number ", i, " as ", now.text(), ", forward returned ", then->text()),
             cause_of(now, *then));
  }
}

void CheckpointSegment::Frame::collect(size_t index, const at::Tensor& tensor,
                                       const SavedTensorStack& keep_by) {
  if (index >= slots.size()) {
    mismatch(calls.back().path, c10::str("saves more than the ", slots.size(), " tensors of forward"),
             kCountCause);
  }
  Slot& slot = slots[index];
  const std::string& path = calls[slot.call].path;
  const TensorForm now(tensor);
  if (!(now == slot.form)) {
    mismatch(
        path,
        c10::str("saved tensor number ", index, " as ", now.text(), ", forward saved ", slot.form.text()),
        cause_of(now, slot.form));
  }
  if (slot.version) check_same(index, tensor);
  if (slot.needed) slot.value = keep_by.pack(tensor);
}

// Neither an input nor mutated buffers. Equal forms may be of other operators: those are told by the nodes
// made before them. Not within a scope of autocast around the segment: it makes one for a cast only where it
// has none in its cache, and forward may have found some there.
void CheckpointSegment::Frame::check_same(size_t index, const at::Tensor& tensor) const {
  const Slot& slot = slots[index];
  const Call& call = calls[slot.call];
  const auto what = [&] { return c10::str("saved tensor number ", index, ", ", slot.form.text(), ", "); };
  if (slot.weight != saving_weight()) {
    mismatch(call.path,
             what() + (slot.weight ? "from an operator, forward from a parameter"
                                   : "from a parameter, forward from an operator"),
             kCountCause);
  }
  if (nodes_of_call() != slot.nodes && !call.ambient.may_find_casts()) {
    mismatch(call.path,
             what() + c10::str("after ", nodes_of_call(), " operators that need a gradient, forward after ",
                               slot.nodes),
             kCountCause);
  }
  check_read(call.path, slot.weight, tensor, *slot.version);
}

void CheckpointSegment::Frame::mismatch(const std::string& path, const std::string& what,
                                        const std::string& cause) const {
  TORCH_CHECK(false, "checkpoint ", path, ": the recomputation ", what,
              "; a segment must recompute the same: ", cause);
}

}  // namespace dtk::policies
