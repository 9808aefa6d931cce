#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <dtk/policies/internal/host_ema.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace dtk::policies {
namespace {

// One chunk arrives, one is averaged, one waits: more slots only cost memory.
constexpr size_t kSlots = 3;
// The chunk that says whether those behind it count, in place of the number of a piece.
constexpr size_t kSkipped = SIZE_MAX;

// The allocator of pinned memory rounds up to powers of two, so a slot is one, and no larger than needed.
int64_t slot_floats(const std::vector<at::Tensor>& weights, int64_t largest_slot) {
  int64_t largest = 1;
  for (const at::Tensor& weight : weights) largest = std::max(largest, weight.numel());
  const auto needed = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest)));
  return std::min(needed, largest_slot / static_cast<int64_t>(sizeof(float)));
}

}  // namespace

HostEma::HostEma(std::vector<at::Tensor> weights, std::vector<at::Tensor> averages,
                 std::unique_ptr<StagingCopies> engine, bool pinned, int64_t largest_slot)
    : weights_(std::move(weights)), averages_(std::move(averages)), engine_(std::move(engine)) {
  const int64_t floats = slot_floats(weights_, largest_slot);
  for (size_t i = 0; i < weights_.size(); ++i) {
    const int64_t count = weights_[i].numel();
    for (int64_t begin = 0; begin < count; begin += floats)
      pieces_.push_back({i, begin, std::min(floats, count - begin)});
  }
  std::vector<void*> memory;
  {
    std::optional<HostTierScope> tier;
    if (!weights_.empty() && weights_.front().is_cpu()) tier.emplace();  // else all CPU memory is the host's
    const OwnerScope owner(Category::ema, "slots");
    const auto options = at::TensorOptions(at::kFloat).pinned_memory(pinned);
    for (size_t i = 0; i < std::min(kSlots, std::max<size_t>(1, pieces_.size())); ++i) {
      slots_.push_back(at::empty({floats}, options));
      memory.push_back(slots_.back().mutable_data_ptr());
    }
  }
  ring_ = std::make_unique<StagingRing>(
      *engine_, memory,
      [this](const Chunk& chunk, const void* contents, double weight) { blend(chunk, contents, weight); });
}

at::Tensor HostEma::slice(const at::Tensor& tensor, const Piece& piece) {
  return tensor.detach().as_strided({piece.floats}, {1}, tensor.storage_offset() + piece.begin);
}

void HostEma::post(double decay, const at::Tensor& skipped) {
  std::vector<Chunk> round;
  round.reserve(pieces_.size() + 1);
  if (skipped.defined()) round.push_back({skipped.const_data_ptr(), sizeof(float), kSkipped});
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const auto* from = static_cast<const float*>(weights_[piece.tensor].const_data_ptr()) + piece.begin;
    round.push_back({from, static_cast<size_t>(piece.floats) * sizeof(float), i});
  }
  ring_->post(round, 1.0 - decay);
  ++updates_;
}

// On the ring's thread. LibTorch's lerp rounds every element alike wherever a slice begins or ends, so the
// pieces give the bits of the whole tensor.
void HostEma::blend(const Chunk& chunk, const void* contents, double weight) {
  const at::ThreadLocalStateGuard as_on_training_thread(thread_state_);
  const at::NoGradGuard no_grad;
  if (chunk.index == kSkipped) {
    skipped_ = *static_cast<const float*>(contents) != 0;
    return;
  }
  if (skipped_) return;
  const Piece& piece = pieces_[chunk.index];
  const at::Tensor weights = at::from_blob(const_cast<void*>(contents), {piece.floats}, at::kFloat);
  slice(averages_[piece.tensor], piece).lerp_(weights, weight);
}

void HostEma::exchange(size_t index) {
  const at::NoGradGuard no_grad;
  const HostCopyScope copy;
  const Piece& piece = pieces_.at(index);
  const at::Tensor weights = slice(weights_[piece.tensor], piece);
  const at::Tensor averages = slice(averages_[piece.tensor], piece);
  const at::Tensor stash = slots_.front().narrow(0, 0, piece.floats);
  stash.copy_(weights);
  weights.copy_(averages);
  averages.copy_(stash);
}

int64_t HostEma::slot_bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& slot : slots_) bytes += static_cast<int64_t>(slot.nbytes());
  return bytes;
}

}  // namespace dtk::policies
