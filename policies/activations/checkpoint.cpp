#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>

#include "activations/segment.h"

namespace dtk::policies {
namespace {

void check_one_device(std::string_view path, const Tensors& inputs) {
  const at::Tensor* first = nullptr;
  size_t number = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (!input.defined() || (input.is_cpu() && input.dim() == 0)) continue;
    if (first == nullptr) {
      first = &input;
      number = i;
    }
    TORCH_CHECK(input.device() == first->device(), "checkpoint ", path, ": inputs on two devices: ", number,
                " on ", first->device(), ", ", i, " on ", input.device(),
                "; a segment runs on one: move them to one before it (tensor.to); only numbers without "
                "dimensions may stay on the cpu");
  }
}

// The CPU, and what the inputs lie on.
Devices devices_of(const Tensors& inputs) {
  Devices devices{at::kCPU};
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || input.is_meta()) continue;
    if (std::find(devices.begin(), devices.end(), input.device()) == devices.end())
      devices.push_back(input.device());
  }
  return devices;
}

}  // namespace

// A tensor of forward that is not kept.
class CheckpointSegment::Frame::Dropped final : public SavedTensor {
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

// One of the segment's inputs, which it keeps in any case. Not where a layer below would have to make it
// again, or to fetch it, once more than the recomputation does.
class CheckpointSegment::Frame::AnInput final : public SavedTensor {
 public:
  AnInput(std::shared_ptr<Frame> frame, size_t index) : frame_(std::move(frame)), index_(index) {}
  at::Tensor unpack() override {
    frame_->check_forward_ended();
    return frame_->inputs[index_].tensor->unpack();
  }

 private:
  const std::shared_ptr<Frame> frame_;
  const size_t index_;
};

// A parameter or a view of one, which the model keeps in any case: no layer below need know of it.
class CheckpointSegment::Frame::AWeight final : public SavedTensor {
 public:
  AWeight(std::weak_ptr<Frame> frame, std::string path, const at::Tensor& weight)
      : frame_(std::move(frame)),
        path_(std::move(path)),
        weight_(is_parameter(weight) ? weight : weight.tensor_data()),
        version_(version_of(weight)) {}
  at::Tensor unpack() override {
    if (const std::shared_ptr<Frame> frame = frame_.lock()) frame->check_forward_ended();
    check_read(path_, /*weight=*/true, weight_, version_);
    return weight_;
  }

 private:
  const std::weak_ptr<Frame> frame_;  // whose inputs are let go when all else of it is
  const std::string path_;
  const at::Tensor weight_;
  const int64_t version_;
};

// What backward can have without recomputing the segment; null for all else.
std::unique_ptr<SavedTensor> CheckpointSegment::Frame::at_hand(const at::Tensor& tensor) {
  const Call& call = calls.back();
  const size_t inputs_of_call = in_forward == nullptr || below.lets_go() ? 0 : in_forward->size();
  for (size_t i = 0; i < inputs_of_call; ++i) {
    const bool is_it = (*in_forward)[i].tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl();
    if (is_it && call.sources[i].call == Source::kOutside)
      return std::make_unique<AnInput>(shared_from_this(), call.sources[i].index);
  }
  return saving_weight() ? std::make_unique<AWeight>(weak_from_this(), call.path, tensor) : nullptr;
}

std::unique_ptr<SavedTensor> CheckpointSegment::Frame::pack(const at::Tensor& tensor,
                                                            const SavedTensorStack&) {
  std::lock_guard lock(mutex);
  nodes_at_last_slot = at::sequence_number::peek();
  slots.push_back({TensorForm(tensor), calls.size() - 1, nodes_of_call(),
                   tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr,
                   version_of(tensor), saving_weight()});
  if (count != nullptr && !saving_weight()) count->saved(tensor);
  if (std::unique_ptr<SavedTensor> kept = at_hand(tensor)) {
    slots.back().needed = false;
    return kept;
  }
  ++checkpoint_counters().dropped;
  return std::make_unique<Dropped>(shared_from_this(), slots.size() - 1);
}

CheckpointCounters& checkpoint_counters() {
  static CheckpointCounters counters;
  return counters;
}

CheckpointCounts checkpoint_counts() {
  const CheckpointCounters& counters = checkpoint_counters();
  return {counters.segments, counters.recomputes, counters.early_stops, counters.dropped};
}

CheckpointSegment::CheckpointSegment(bool counted, std::shared_ptr<KeptResults> keep)
    : counted_(counted), keep_(std::move(keep)) {}
CheckpointSegment::~CheckpointSegment() = default;

int64_t CheckpointSegment::max_saved() const {
  if (frame_ == nullptr || frame_->count == nullptr) return 0;
  std::lock_guard lock(frame_->mutex);
  int64_t bytes = frame_->count->let_go;
  for (const auto& [storage, held] : frame_->count->kept) bytes -= held;
  return bytes;
}

Tensors checkpoint(std::string_view path, const ModuleFn& fn, Tensors&& inputs,
                   std::shared_ptr<KeptResults> keep) {
  CheckpointSegment chain(/*counted=*/false, std::move(keep));
  return chain.append(path, fn, std::move(inputs));
}

Tensors CheckpointSegment::append(std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
  if (!at::GradMode::is_enabled()) return fn(std::move(inputs));
  check_engine("checkpoint", path);
  if (frame_ == nullptr) {
    frame_ = std::make_shared<Frame>(SavedTensorStack::current(), counted_);
    ++checkpoint_counters().segments;
  }
  TORCH_CHECK(
      !frame_->open, "checkpoint ", path,
      ": continues a segment in which a module threw, or still runs; begin another CheckpointSegment");
  frame_->open = true;
  frame_->each_output([](Frame::Output& output, int64_t now) { output.changed |= now != output.version; });
  const Frame::InputsBefore before = frame_->begin_call(path, fn, inputs);
  const RandomStates random(frame_->calls.back().devices);
  const MutationRecorder state;
  const size_t first_slot = frame_->slots.size();
  const auto count_kept = [this](const at::Tensor& one) {
    if (frame_->count != nullptr) frame_->count->input(one);
  };
  Tensors outputs;
  SavedOperators kept;
  {
    const SavedTensorScope scope(frame_);
    const ScopedValue<const Frame::InputsBefore*> first(frame_->in_forward, &before);
    const Frame::Call& call = frame_->calls.back();
    SaveScope keep(keep_.get(), frame_->below, call.devices, call.path, count_kept);
    outputs = fn(std::move(inputs));
    kept = keep.take();
  }
  // Recomputation makes its own. Kept by autocast until the forward pass ends, those of all segments would
  // add up to half of the weights' bytes.
  at::autocast::clear_cache();
  Frame::Call& call = frame_->calls.back();
  if (!random.still_so()) call.random = std::make_unique<const RandomStates>(random);
  call.state = state.mutated(outputs);
  call.statistics = state.statistics();
  for (const BatchStatistics& one : call.statistics) {
    for (const at::Tensor& kept_one : {one.mean, one.invstd}) count_kept(kept_one);
  }
  call.kept = std::move(kept);
  frame_->forget_versions(first_slot, before);
  frame_->end_call(before, outputs);
  frame_->open = false;
  return outputs;
}

CheckpointSegment::Frame::InputsBefore CheckpointSegment::Frame::begin_call(std::string_view path,
                                                                            const ModuleFn& fn,
                                                                            const Tensors& given) {
  check_one_device(path, given);
  const Devices devices = devices_of(given);
  Call call{std::string(path), fn, {}, devices, AmbientState(devices), {}, {}, {}, {}, {}};
  InputsBefore before;
  const ModulePathScope within(path);  // what is kept for this module is counted as its own
  for (const at::Tensor& input : given) {
    call.sources.push_back(source_of(call.path, input));
    const bool outside = call.sources.back().call == Source::kOutside;
    before.push_back({decltype(InputBefore::tensor)(input.getIntrusivePtr()),
                      input.defined() ? std::optional<TensorForm>(input) : std::nullopt,
                      input.unsafeGetTensorImpl()->version_counter(), input.defined() ? version_of(input) : 0,
                      outside && input.defined(),
                      input.defined() && input.has_storage()
                          ? std::optional(input.storage().getWeakStorageImpl())
                          : std::nullopt});
  }
  calls.push_back(std::move(call));
  nodes_before_call = at::sequence_number::peek();
  return before;
}

uint64_t CheckpointSegment::Frame::nodes_of_call() const {
  return at::sequence_number::peek() - nodes_before_call;
}

// What a recomputation has in the place of inputs and of mutated buffers are other tensors, with versions of
// their own.
void CheckpointSegment::Frame::forget_versions(size_t first_slot, const InputsBefore& before) {
  const MutatedBuffers& state = calls.back().state;
  for (size_t i = first_slot; i < slots.size(); ++i) {
    const void* const storage = slots[i].storage;
    const bool is_input = std::any_of(before.begin(), before.end(), [&](const InputBefore& input) {
      return input.storage && input.storage->_unsafe_get_target() == storage;
    });
    const bool is_state = std::any_of(state.begin(), state.end(),
                                      [&](const auto& one) { return one._unsafe_get_target() == storage; });
    if (is_input || is_state) slots[i].version.reset();
  }
}

void CheckpointSegment::Frame::end_call(const InputsBefore& before, const Tensors& outputs) {
  Call& call = calls.back();
  for (size_t i = 0; i < before.size(); ++i) {
    const InputBefore& input = before[i];
    if (!input.outside || !input.counter.enabled()) continue;
    const int64_t now = input.counter.current_version();
    TORCH_CHECK(now == input.version, "checkpoint ", call.path, ": changes its input ", i, ", ",
                input.form->text(), ", in place (version ", input.version, " before, ", now,
                " after), but backward needs it as it was to recompute the segment; make that change out "
                "of place (relu, not relu_) or on a copy (tensor.clone())");
  }
  each_output([](Output& output, int64_t now) {
    if (!output.changed) output.version = now;
  });
  size_t defined = 0, returned = 0, number = 0;
  bool with_gradient = false;
  constexpr int64_t kFewElements = 1024;
  short_tail = at::sequence_number::peek() == nodes_at_last_slot;
  for (const at::Tensor& output : outputs) {
    const auto same = std::find_if(before.begin(), before.end(), [&](const InputBefore& input) {
      return input.tensor._unsafe_get_target() == output.unsafeGetTensorImpl();
    });
    call.outputs.push_back({decltype(Output::tensor)(output.getIntrusivePtr()), std::nullopt, 0});
    if (!output.defined()) continue;
    ++defined;
    call.outputs.back().form.emplace(output);
    call.outputs.back().version = version_of(output);
    with_gradient |= output.requires_grad();
    short_tail &= output.numel() <= kFewElements;
    if (same != before.end()) {
      ++returned;
      number = static_cast<size_t>(same - before.begin());
    } else if (output.use_count() > 1) {
      runs_to_end = true;
    }
  }
  TORCH_CHECK(!with_gradient || returned < defined, "checkpoint ", call.path, ": returns its input ", number,
              ", ", before[number].form->text(),
              ", unchanged, so there is nothing to recompute; leave this module out of the segments, or "
              "skip it where it is called");
}

template <class Visit>
void CheckpointSegment::Frame::each_output(Visit visit) {
  for (Call& call : calls) {
    for (Output& output : call.outputs) {
      const at::Tensor tensor(output.tensor.lock());
      if (tensor.defined()) visit(output, version_of(tensor));
    }
  }
}

void CheckpointSegment::Frame::SavedCount::saved(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  const void* const storage = tensor.storage().unsafeGetStorageImpl();
  if (kept_anyway.count(storage) > 0) return;
  if (kept.erase(storage) > 0) {
    kept_anyway.insert(storage);
  } else {
    let_go += static_cast<int64_t>(tensor.nbytes());
  }
}

void CheckpointSegment::Frame::SavedCount::input(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || is_parameter(tensor)) return;
  const void* const storage = tensor.storage().unsafeGetStorageImpl();
  if (kept_anyway.count(storage) == 0) kept[storage] = static_cast<int64_t>(tensor.storage().nbytes());
}

CheckpointSegment::Frame::Source CheckpointSegment::Frame::source_of(const std::string& path,
                                                                     const at::Tensor& input) {
  for (size_t c = 0; input.defined() && c < calls.size(); ++c) {
    for (size_t i = 0; i < calls[c].outputs.size(); ++i) {
      const Output& output = calls[c].outputs[i];
      if (output.tensor._unsafe_get_target() != input.unsafeGetTensorImpl()) continue;
      TORCH_CHECK(!output.changed, "checkpoint ", path, ": its input ", input.sizes(), ", which ",
                  calls[c].path, " returned, was changed in place between modules (version ", output.version,
                  " then, ", version_of(input),
                  " now); they are one segment, whose recomputation would leave that change out; make it out "
                  "of place or within a module, or let a segment begin with ",
                  path);
      return {c, i};
    }
  }
  if (count != nullptr) count->input(input);
  at::NoGradGuard no_grad;
  inputs.push_back({input.defined() ? below.pack(input.tensor_data()) : nullptr,
                    input.defined() && input.requires_grad()});
  return {Source::kOutside, inputs.size() - 1};
}

}  // namespace dtk::policies
