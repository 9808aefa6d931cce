// One segment of checkpoint.h: what it takes to recompute it. Made by checkpoint.cpp while forward runs, used
// by recompute.cpp.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/saved_tensors.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "activations/ambient_state.h"
#include "activations/mutated_buffers.h"
#include "activations/selective.h"

namespace dtk::policies {

/// What a tensor must look like when it is recomputed.
struct TensorForm {
  at::DimVector sizes;
  at::ScalarType dtype;
  c10::Device device;

  explicit TensorForm(const at::Tensor& tensor)
      : sizes(tensor.sizes()), dtype(tensor.scalar_type()), device(tensor.device()) {}
  bool operator==(const TensorForm& other) const {
    return sizes == other.sizes && dtype == other.dtype && device == other.device;
  }
  /// "[2, 3] Float on cpu"
  std::string text() const;
};

/// Throws c10::Error if a tensor that the segment `path` reads, a parameter or another, is no longer at
/// version `then`.
void check_read(const std::string& path, bool weight, const at::Tensor& tensor, int64_t then);

/// Shared by the chain while forward runs and by every tensor that autograd saved in it. As a layer it takes
/// down what forward saves and keeps none of it.
struct CheckpointSegment::Frame final : SavedTensorLayer, std::enable_shared_from_this<Frame> {
  class Dropped;
  class AnInput;
  class AWeight;

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
    std::optional<TensorForm> form;  // none: undefined
    int64_t version;       // as this segment's calls left it: what they change in place they change again
    bool changed = false;  // by others, since
  };
  struct Call {
    std::string path;
    ModuleFn fn;
    c10::SmallVector<Source, 2> sources;
    Devices devices;
    AmbientState ambient;
    std::unique_ptr<const RandomStates> random;  // before the call; null if it drew nothing
    MutatedBuffers state;
    StatisticsOfCalls statistics;
    SavedOperators kept;
    c10::SmallVector<Output, 1> outputs;
  };
  // One tensor that forward saved.
  struct Slot {
    TensorForm form;
    size_t call;
    uint64_t nodes;                  // of autograd, that the call had made by then
    const void* storage;             // only to compare with others while forward runs
    std::optional<int64_t> version;  // none: an input's, which is compared itself, or changing state's
    bool weight;                     // a parameter
    bool needed = true;              // autograd holds it and only a recomputation can give it
    std::unique_ptr<SavedTensor> value = nullptr;  // between recomputation and use
  };

  // Behind max_saved().
  struct SavedCount {
    int64_t let_go = 0;                   // bytes of saved tensors that are neither inputs nor parameters
    std::map<const void*, int64_t> kept;  // inputs by storage that no plain pass would have kept so far
    std::set<const void*> kept_anyway;    // those that one would

    void saved(const at::Tensor& tensor);
    void input(const at::Tensor& tensor);
  };

  Frame(SavedTensorStack under, bool counted)
      : below(std::move(under)), count(counted ? std::make_unique<SavedCount>() : nullptr) {}

  // An input as a call finds it. Holds no memory: the call may be the last to use it.
  struct InputBefore {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    std::optional<TensorForm> form;  // none: undefined
    c10::VariableVersion counter;
    int64_t version;
    bool outside;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;  // so that no other gets its address
  };
  using InputsBefore = c10::SmallVector<InputBefore, 4>;

  // Forward.
  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& under) override;
  bool keeps() const override { return false; }
  bool only_looks() const override { return true; }
  InputsBefore begin_call(std::string_view path, const ModuleFn& fn, const Tensors& inputs);
  std::unique_ptr<SavedTensor> at_hand(const at::Tensor& tensor);
  void end_call(const InputsBefore& before, const Tensors& outputs);
  Source source_of(const std::string& path, const at::Tensor& input);
  template <class Visit>
  void each_output(Visit visit);

  // Backward.
  void check_forward_ended() const;
  at::Tensor take(size_t index);
  void recompute();
  void recompute_into(const std::shared_ptr<CollectLayer>& collector);
  using OutsideTensors = c10::SmallVector<at::Tensor, 4>;  // as Frame::inputs
  void run_calls(const OutsideTensors& outside);
  void check_outputs(const Call& call, const Tensors& outputs) const;
  void collect(size_t index, const at::Tensor& tensor, const SavedTensorStack& keep_by);
  void check_same(size_t index, const at::Tensor& tensor) const;
  [[noreturn]] void mismatch(const std::string& path, const std::string& what,
                             const std::string& cause) const;

  uint64_t nodes_of_call() const;
  void forget_versions(size_t first_slot, const InputsBefore& before);

  const SavedTensorStack below;
  uint64_t nodes_before_call = 0;           // the thread's, in the run that goes on
  uint64_t nodes_at_last_slot = 0;          // of autograd, that the thread had made
  const std::unique_ptr<SavedCount> count;  // null: nobody asks
  bool open = false;  // a call has begun and not ended; for the thread of the forward pass
  // Most segments are one call of few tensors: they lie in the frame's own block of memory.
  c10::SmallVector<Call, 1> calls;
  c10::SmallVector<Input, 2> inputs;
  c10::SmallVector<Slot, 2> slots;
  const InputsBefore* in_forward = nullptr;  // of the call that runs for the first time
  bool short_tail = false;     // what follows the last slot costs less than the exception that would stop it
  bool runs_to_end = false;    // no early stop: somebody else holds an output, perhaps a cache that grows
  std::recursive_mutex mutex;  // backward may unpack on several threads; nested segments on one
};

/// Behind checkpoint_counts().
struct CheckpointCounters {
  std::atomic<int64_t> segments{0}, recomputes{0}, early_stops{0}, dropped{0};
};
CheckpointCounters& checkpoint_counters();

}  // namespace dtk::policies
