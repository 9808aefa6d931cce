// Activation offload: what a segment saves for backward waits in host memory. Nothing is recomputed.
//
// Each storage that autograd saves within a segment, if it is large enough, is copied to pinned host memory
// on a stream beside the device's work (async_copies.h). While forward runs, the device holds what the latest
// two segments saved: one is made, the other is being copied; after forward, what the last one saved. While
// backward runs, it holds the segment at hand and the one before, which is being fetched. On the CPU the same
// is done in the same order with copies that end at once, and host memory is counted apart
// (host_accounts()), so that bytes can be seen and planned without a device.
//
// A layer of saved_tensors.h, so it needs a SavedTensorEngineGuard.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/async_copies.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/seam.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// What went to host memory and came back so far.
struct OffloadCounts {
  int64_t copied_out = 0;  // storages
  int64_t copied_out_bytes = 0;
  int64_t fetched = 0;         // storages copied back; those that were still on the device are not
  int64_t host_bytes = 0;      // in host memory now
  int64_t max_host_bytes = 0;  // at once
  bool from_host = false;      // a storage that went out lay in host memory already: nothing is gained
};

class OffloadStore;
class SavedTensorStack;

/// Runs fn(inputs) as one segment and returns its outputs; what autograd saves meanwhile, in storages of at
/// least min_bytes of `store`, waits in host memory. Gradients are those of fn(inputs), bit for bit but for
/// what freeing autocast's casts early does (checkpoint.h). `goes_on`: joins the segment of the store's
/// latest call instead of beginning one.
///
/// Not copied: leaves that need a gradient, such as parameters, and their views, which stay anyway; what
/// checkpointing recomputes in backward; what lies on the CPU, unless all inputs do. A storage that several
/// tensors lie in, or that several segments save, is copied once. A storage that something else keeps alive,
/// but a parameter's, is copied but not freed, and backward takes it from there.
///
/// With recomputation: fn may call checkpoint(), whose inputs and kept results then wait in host memory.
/// Within a segment of either kind, while a segment is recomputed, and without grad mode this is fn(inputs):
/// the outer segment decides.
///
/// autograd::grad, retain_graph, create_graph and backward on worker threads work. Backward throws c10::Error
/// where a saved tensor was changed in place since; c10::OutOfMemoryError is thrown by either pass where
/// device or host have no room.
Tensors offload(std::string_view path, const ModuleFn& fn, Tensors&& inputs,
                const std::shared_ptr<OffloadStore>& store, bool goes_on = false);

/// The order of a model's segments, and what they keep in host memory; for any number of steps. Thread-safe.
class OffloadStore : NotCopied {
 public:
  using MakeCopies = std::function<std::unique_ptr<AsyncCopies>(c10::Device)>;
  explicit OffloadStore(int64_t min_bytes, MakeCopies make_copies = make_async_copies);
  ~OffloadStore();

  int64_t min_bytes() const { return min_bytes_; }
  OffloadCounts counts() const;

 private:
  struct Moved;
  class Layer;
  class Offloaded;
  friend Tensors offload(std::string_view path, const ModuleFn& fn, Tensors&& inputs,
                         const std::shared_ptr<OffloadStore>& store, bool goes_on);
  // What one segment saved and autograd still holds.
  struct Segment {
    size_t held = 0;
    std::vector<std::weak_ptr<Moved>> moved;  // in the order in which they were saved
  };

  uint64_t begin(bool goes_on);
  void end(uint64_t segment);
  bool takes(const at::Tensor& tensor, bool cpu_trains) const;
  std::shared_ptr<Moved> move_out(const at::Tensor& tensor, const SavedTensorStack& below, uint64_t segment,
                                  std::string_view path);
  void need(uint64_t segment);
  c10::Storage on_device(Moved& moved);
  void fetch(Moved& moved);
  void let_go(Moved& moved);
  AsyncCopies& copies(c10::Device device);

  const int64_t min_bytes_;
  const MakeCopies make_copies_;
  // Recursive: freeing one thing may free another of the store.
  mutable std::recursive_mutex mutex_;  // guards everything below
  std::map<c10::Device, std::unique_ptr<AsyncCopies>, bool (*)(c10::Device, c10::Device)> copies_;
  std::map<const void*, std::weak_ptr<Moved>> by_storage_;  // the latest copy of each
  std::map<uint64_t, Segment> segments_;                    // in the order of forward
  std::set<Moved*> here_;                                   // those whose memory on the device is held
  uint64_t latest_ = 0;                                     // segment that began last, counted from 1
  uint64_t at_hand_ = 0;                                    // segment that backward is in; 0: none
  OffloadCounts counts_;
};

}  // namespace dtk::policies
