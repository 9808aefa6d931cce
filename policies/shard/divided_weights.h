// Where the divided weights of a unit are while they are whole, and which come next.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/shards.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace dtk::policies {

inline constexpr char kWhenGathered[] = "in the exchange of weights";

// Elements of a unit of which each is sent as so many bytes. Autocast rounds what products read, so that
// matrices may be sent rounded; a fused kernel adds a vector as it is.
struct Stretch {
  int64_t begin, elements;
  c10::ScalarType type;
  int64_t byte;  // where it begins
};

struct Shards::Home {
  at::Tensor whole = {};  // (elements of the unit); its storage has memory while the unit is whole
  at::Tensor own = {};    // (elements of the own part)
  // Weights on their way: late ones in the unit's memory; bytes of their own where some are sent as bf16,
  // until they are widened.
  at::Tensor received = {};
  std::vector<Stretch> stretches = {};  // empty: all is sent as it lies
  std::vector<int64_t> byte_ends = {};  // else of the ranks' parts
  std::string complaint;                // of who reads the unit while it is not there
  size_t members = 0;                   // that have moved in
  int64_t uses = 0;                     // modules that run
  size_t without_gradient = 0;          // members that a backward pass has yet to reach; 0: none is under way
  bool is_whole = false;                // or on its way
  bool is_ahead = false;                // gathered before its use, which has not come yet
  std::vector<Collectives::Pending> coming = {};

  bool is_used() const { return uses > 0 || without_gradient > 0; }
  c10::StorageImpl& storage() const { return *whole.storage().unsafeGetStorageImpl(); }
  // A backward pass under way stays as it is.
  void use_until_gradients() {
    if (without_gradient == 0) without_gradient = members;
  }
  bool has_bf16() const { return !stretches.empty(); }
  int64_t byte_of(int64_t element) const;
  /// Calls `take` with what is sent of the elements [begin, end), a stretch at a time: a view of `received`,
  /// the first element, and how many.
  template <class Take>
  void each_sent(int64_t begin, int64_t end, const Take& take) const {
    for (const Stretch& one : stretches) {
      const int64_t from = std::max(begin, one.begin), to = std::min(end, one.begin + one.elements);
      if (from >= to) continue;
      take(received.narrow(0, byte_of(from), byte_of(to) - byte_of(from)).view(one.type), from, to - from);
    }
  }
  void take_memory();
  void widen();
  void let_go();
  // What `whole` is, in a storage of its own, and of a version of its own.
  at::Tensor second_view() const;
  // The unit's memory moves out of its storage, into `received`, and back.
  void send_off();
  void come_back();
};

// The units that a pass gathers for its modules, one after the other: the same at each rank, so that all
// gather ahead the same. Those of the modules in their order, again and again; or, at first and where that
// `learns`, once, as it is known then from the pass before what a backward pass gathers.
class Shards::Order {
 public:
  Order(std::vector<size_t> units, bool learns) : learns_(learns), expected_(std::move(units)) {}
  void begin() {
    if (learns_ && !come_.empty()) expected_ = std::move(come_);
    come_.clear();
    at_ = 0;
  }
  void came_to(size_t unit) {
    come_.push_back(unit);
    auto found = std::find(expected_.begin() + static_cast<std::ptrdiff_t>(at_), expected_.end(), unit);
    if (found == expected_.end() && !learns_) found = std::find(expected_.begin(), expected_.end(), unit);
    at_ = static_cast<size_t>(found - expected_.begin()) + (found == expected_.end() ? 0 : 1);
  }
  // What is expected behind the last, and behind `more` others.
  std::optional<size_t> next(int64_t more) const {
    const size_t at = at_ + static_cast<size_t>(more);
    return at < expected_.size() ? std::optional(expected_[at]) : std::nullopt;
  }

 private:
  const bool learns_;
  std::vector<size_t> expected_, come_;
  size_t at_ = 0;
};

}  // namespace dtk::policies
