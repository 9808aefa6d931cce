// Averages in host memory of weights on a training device, updated beside the training.
//
// Costs 4 bytes of host memory per weight and up to three slots; nothing on the device.
#pragma once
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/staging_ring.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace dtk::policies {

/// All functions are for the training thread. Errors of the background thread are thrown by post, wait_copied
/// and flush (staging_ring.h).
class HostEma {
 public:
  /// `averages`: in host memory, of the weights' sizes and strides; all tensors fp32 without gaps. Both lists
  /// are kept and weights keep their storages between post() and wait_copied(). `pinned` takes the slots from
  /// the device's allocator for pinned memory. `largest_slot`: bytes, a power of two.
  HostEma(std::vector<at::Tensor> weights, std::vector<at::Tensor> averages,
          std::unique_ptr<StagingCopies> engine, bool pinned, int64_t largest_slot = int64_t{32} << 20);

  /// After the weights changed: average <- decay·average + (1 - decay)·weight, in the background. `skipped`,
  /// if defined: a float scalar beside the weights, with which it travels; where it is 1 the averages keep
  /// their bits. It must keep its value until wait_copied(), and is given in each round or in none.
  void post(double decay, const at::Tensor& skipped = {});
  /// Before the weights change again.
  void wait_copied() { ring_->wait_copied(); }
  /// Before the averages are read or written: waits for all posted updates.
  void flush() { ring_->flush(); }

  /// The tensors are exchanged piece by piece through a slot, so no second copy is made. Flush first; a piece
  /// exchanged twice is as before.
  size_t pieces() const { return pieces_.size(); }
  void exchange(size_t piece);

  /// Bytes of the slots, in host memory.
  int64_t slot_bytes() const;
  int64_t updates() const { return updates_; }
  const StagingRing& ring() const { return *ring_; }

 private:
  // What one slot takes: `floats` of a tensor's memory from `begin` on.
  struct Piece {
    size_t tensor;
    int64_t begin;
    int64_t floats;
  };
  static at::Tensor slice(const at::Tensor& tensor, const Piece& piece);
  void blend(const Chunk& chunk, const void* contents, double weight);

  // The ring ends first, then the engine with its copies, then the memory both work on.
  const std::vector<at::Tensor> weights_;
  const std::vector<at::Tensor> averages_;  // as weights_
  std::vector<Piece> pieces_;
  std::vector<at::Tensor> slots_;
  const at::ThreadLocalState thread_state_;  // of the training thread, for the ring's
  std::unique_ptr<StagingCopies> engine_;
  std::unique_ptr<StagingRing> ring_;
  int64_t updates_ = 0;
  bool skipped_ = false;  // the round that arrives; for the ring's thread
};

}  // namespace dtk::policies
