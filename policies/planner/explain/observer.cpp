#include "explain/observer.h"

#include <ATen/core/grad_mode.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <utility>

namespace dtk::planner {
namespace {

using policies::Category;
using policies::MemoryBlock;

constexpr int kWithoutGrad = -2;  // of the stack: a module that runs without grad mode

thread_local std::vector<int> stack;  // instances that this thread is in, the innermost last

}  // namespace

// Parameters are there whatever is saved.
const MemoryBlock* Observer::block_of(const at::Tensor& tensor) const {
  const MemoryBlock* block = policies::counted_block(tensor);
  const bool counts = block != nullptr && block->tier == tier_ &&
                      block->owner.category != Category::parameters &&
                      block->owner.category != Category::frozen;
  return counts && !policies::is_parameter(tensor) ? block : nullptr;
}

void Observer::begin_forward() {
  in_backward_ = false;
  first_ = instances_.size();
}

void Observer::enter(std::string_view path, const policies::Tensors& inputs) {
  const std::lock_guard lock(mutex_);
  if (ran_.insert(std::string(path)).second) order_.emplace_back(path);
  if (!at::GradMode::is_enabled()) return stack.push_back(kWithoutGrad);
  if (stack.empty() && (in_backward_ || live_.empty())) begin_forward();
  Snapshot::Instance instance;
  instance.path = path;
  if (!stack.empty() && stack.back() >= 0) instance.parent = stack.back();
  for (const at::Tensor& input : inputs) {
    if (const MemoryBlock* block = block_of(input)) instance.inputs[block->serial] = block->bytes;
  }
  stack.push_back(static_cast<int>(instances_.size()));
  instances_.push_back(std::move(instance));
}

void Observer::leave(const policies::Tensors* outputs) {
  const std::lock_guard lock(mutex_);
  const int top = stack.back();
  stack.pop_back();
  if (top < 0 || outputs == nullptr) return;
  Snapshot::Instance& instance = instances_[static_cast<size_t>(top)];
  for (const at::Tensor& output : *outputs) {
    const MemoryBlock* block = block_of(output);
    if (block != nullptr && instance.inputs.count(block->serial) == 0)
      instance.outputs.push_back(block->serial);
  }
}

void Observer::kept(uint64_t id, const at::Tensor& tensor) {
  const bool again = policies::backward_place().active;
  const MemoryBlock* const block = policies::saving_weight() ? nullptr : block_of(tensor);
  const std::lock_guard lock(mutex_);
  saved_any_ = true;
  if (!again && in_backward_) begin_forward();
  const int top = stack.empty() ? Snapshot::kOutside : stack.back();
  for (int i = again ? Snapshot::kOutside : top; i >= 0; i = instances_[static_cast<size_t>(i)].parent)
    ++instances_[static_cast<size_t>(i)].tensors_saved;
  if (block == nullptr) return;
  Snapshot::Holder holder{Snapshot::kOutside, policies::module_path()};
  if (!again && top >= 0) holder = {top, instances_[static_cast<size_t>(top)].path};
  const auto [entry, added] = live_.try_emplace(block->serial);
  entry->second.holders[id] = holder;
  storages_[id] = block->serial;
  if (!added) return;
  entry->second.bytes = block->bytes;
  if (!again) return;
  // What a forward operator saves was made by one; a copy from host memory is born outside of all.
  InBackward& now = offloads_ && block->operation == 0 ? fetched_ : recomputed_;
  entry->second.again = &now;
  now.bytes += block->bytes;
  if (&now == &recomputed_) {
    int64_t& most = recomputed_by_[holder.path];
    most = std::max(most, now.bytes);
  }
  if (now.bytes > now.most.bytes) now.most = {now.bytes, holder.path};
}

void Observer::asked_for(uint64_t) {
  const std::lock_guard lock(mutex_);
  backward_ = true;
  if (std::exchange(in_backward_, true)) return;
  take_snapshot();
}

void Observer::let_go(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto storage = storages_.find(id);
  if (storage == storages_.end()) return;
  const auto entry = live_.find(storage->second);
  storages_.erase(storage);
  entry->second.holders.erase(id);
  if (!entry->second.holders.empty()) return;
  if (entry->second.again != nullptr) entry->second.again->bytes -= entry->second.bytes;
  live_.erase(entry);
}

void Observer::take_snapshot() {
  int64_t bytes = 0;
  for (const auto& [storage, live] : live_) bytes += live.bytes;
  if (bytes <= best_.bytes() && !best_.instances.empty()) return;
  best_ = {};
  const auto first = static_cast<int>(first_);
  const auto from_first = [first](int instance) {
    return instance >= first ? instance - first : Snapshot::kOutside;
  };
  for (size_t i = first_; i < instances_.size(); ++i) {
    best_.instances.push_back(instances_[i]);
    best_.instances.back().parent = from_first(instances_[i].parent);
  }
  for (const auto& [storage, live] : live_) {
    Snapshot::Kept& kept = best_.kept[storage];
    kept.bytes = live.bytes;
    for (const auto& [id, holder] : live.holders) {
      const Snapshot::Holder one{from_first(holder.instance), holder.path};
      if (std::find(kept.holders.begin(), kept.holders.end(), one) == kept.holders.end())
        kept.holders.push_back(one);
    }
  }
}

void Observer::born(const MemoryBlock& block) {
  if (block.owner.category == Category::offloaded) offloads_ = true;
  if (block.tier != tier_) return;
  const int64_t live = accounts_.live_bytes();
  const std::string phase = accounts_.phase();
  const std::lock_guard lock(mutex_);
  Peak& peak = peaks_[phase];
  if (live <= peak.bytes) return;
  const policies::BackwardPlace place = policies::backward_place();
  peak.bytes = live;
  const std::string& here = policies::module_path();
  peak.place = {policies::owner_of(block.owner).label, place.active && here.empty() ? place.path : here,
                place.active};
}

void Observer::parameter(const MemoryBlock& block, std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (block.tier == tier_) names_.emplace(block.serial, name);
}

std::map<uint64_t, std::string> Observer::names() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

void Observer::report(Observed& observed) {
  const std::lock_guard lock(mutex_);
  observed.with_gradients = saved_any_;
  observed.backward = backward_;
  explain_snapshot(best_, observed);
  for (const std::string& path : order_) {  // also those that no counted forward pass ran
    const auto same = [&](const SegmentGain& one) { return one.path == path; };
    if (std::none_of(observed.segments.begin(), observed.segments.end(), same))
      observed.segments.push_back({path, 0, 0, 0, "no forward pass that backward followed ran it"});
  }
  observed.recomputed_held = recomputed_.most;
  observed.fetched = fetched_.most;
  observed.recomputed_held_by = recomputed_by_;
  for (const auto& [phase, peak] : peaks_) observed.places[phase] = peak.place;
}

}  // namespace dtk::planner
