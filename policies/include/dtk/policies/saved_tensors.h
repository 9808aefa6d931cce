// The one owner of LibTorch's default saved-tensor hooks: an ordered stack of layers, shared by the memory
// ledger, checkpointing and offload.
//
// LibTorch asks the process's autograd engine for a hook each time an operator saves a tensor; without
// Python, an Engine subclass is the only way to answer. This file is the only place that installs one.
// The stack belongs to the thread and travels with LibTorch's thread-local state to the engine's worker
// threads, so that a recomputation inside backward sees the layers of its forward.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dtk/policies/internal/scoped.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dtk::policies {

/// One tensor that autograd saved; destroyed when autograd lets go of it.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  /// The tensor again; may be called more than once (retain_graph).
  virtual at::Tensor unpack() = 0;
};

/// The tensor's version, which LibTorch raises with each change in place; 0 where it counts none (inference).
int64_t version_of(const at::Tensor& tensor);

/// Throws c10::Error if the two versions differ, of a tensor of these sizes saved for backward in `path`.
void check_unchanged(at::IntArrayRef sizes, const std::string& path, int64_t when_saved, int64_t now);

class SavedTensorStack;

/// What one layer does with a tensor to be saved. pack() may be called from any thread.
class SavedTensorLayer {
 public:
  virtual ~SavedTensorLayer() = default;
  /// `tensor` is a leaf that needs a gradient or detached; it shares the original's storage and version
  /// counter. Keep it by below.pack(tensor), or return an object that can recompute it. Runs without grad
  /// mode.
  virtual std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) = 0;
  /// False for a layer that lets tensors go and recomputes them, such as checkpointing, or has them
  /// elsewhere meanwhile.
  virtual bool keeps() const { return true; }
  /// True for a layer that neither holds a tensor nor passes it on. It is given the original, which spares
  /// a copy of its sizes; held, that would never be freed.
  virtual bool only_looks() const { return false; }
};

/// A leaf that needs a gradient, or a parameter that was marked as frozen.
bool is_parameter(const at::TensorBase& tensor);

/// Marks a leaf that needs no gradient as a parameter, for good. What backward needs of it is there anyway:
/// it is neither counted as saved nor moved to host memory. The mark is LibTorch's name of a variable; one
/// that it has already serves, and a copy or a cast of the leaf has none.
void mark_frozen(const at::Tensor& parameter);

/// True while a layer packs a parameter or a view of one: its memory is there whatever is kept for backward.
bool saving_weight();

/// True while a layer packs a low-precision copy of a leaf: what autocast makes of a weight.
bool saving_weight_cast();

/// The layers under a given one; copies are cheap.
class SavedTensorStack {
 public:
  struct Node;
  /// The calling thread's stack.
  static SavedTensorStack current();

  /// Passes the tensor to the top layer; below the last one it is kept as it is, with its version.
  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor) const;
  bool empty() const { return top_ == nullptr; }
  /// The uppermost layer, or null.
  const SavedTensorLayer* top() const;
  /// Whether a layer lets tensors go.
  bool lets_go() const;
  /// The same layers without those that do not keep: where a tensor goes that was just recomputed.
  SavedTensorStack keepers() const;

 private:
  explicit SavedTensorStack(std::shared_ptr<const Node> top) : top_(std::move(top)) {}
  friend class SavedTensorScope;
  std::shared_ptr<const Node> top_;
};

/// Puts `layer` on top of the calling thread's stack for the lifetime of the object.
class SavedTensorScope : NotCopied {
 public:
  [[nodiscard]] explicit SavedTensorScope(std::shared_ptr<SavedTensorLayer> layer);
  /// Puts it on top of `under` instead.
  [[nodiscard]] SavedTensorScope(std::shared_ptr<SavedTensorLayer> layer, const SavedTensorStack& under);
  /// Makes `stack` the calling thread's stack, e.g. to recompute with the layers of the forward pass.
  [[nodiscard]] explicit SavedTensorScope(const SavedTensorStack& stack);
  ~SavedTensorScope();

 private:
  c10::DebugInfoGuard guard_;
};

/// Installs the engine that asks the stack, and puts LibTorch's base engine back at the end. Guards may
/// nest; the engine itself lives for ever, because its worker threads do. Install before the first
/// backward of the process. Without it all scopes are ignored. The first one also registers the kernels that
/// watch operators: install it before other threads run operators. Throws c10::Error if their keys are taken.
class SavedTensorEngineGuard : NotCopied {
 public:
  [[nodiscard]] SavedTensorEngineGuard();
  ~SavedTensorEngineGuard();
};

/// Throws c10::Error if no guard is alive: `what` of the module `path` would have no effect.
void check_engine(const char* what, std::string_view path);

/// Layer for the saved-tensor stack: tensors saved for backward belong to (saved, module path) while
/// autograd holds them. Must be the lowest layer, where tensors really are kept, or right above another
/// ledger, which then does it all; throws c10::Error elsewhere.
std::shared_ptr<SavedTensorLayer> saved_tensor_ledger();

}  // namespace dtk::policies
