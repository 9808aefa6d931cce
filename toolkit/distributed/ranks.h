// The ranks of a job, as one of them sees the others.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

namespace at {
class Tensor;
}
namespace c10d {
class Backend;
}

namespace dtk {

/// For one thread. Whatever waits for others throws policies::CollectiveError where one of them has failed or
/// does not answer; all ranks call the same in the same order.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// Rank 0, which speaks for all and writes the run's folder, but files of checkpoints.
  bool leads() const { return rank() == 0; }
  /// "rank 1 on node07"
  virtual std::string name() const = 0;
  /// For tensors on the device that is trained on.
  virtual c10::intrusive_ptr<c10d::Backend> group() const = 0;
  /// What each says, in their order; all say as many numbers. Takes no tensor's memory. `when`: of an error.
  virtual std::vector<std::vector<double>> all_say(const std::vector<double>& own, const char* when) = 0;
  /// What each has of `values`, fp32 on the CPU and zero where it has none, comes to all, bit by bit: no two
  /// have the same. `when`: of an error.
  virtual void join(const at::Tensor& values, const char* when) = 0;
  /// The leader's `text` of this name, which the others wait for. One name has one text.
  virtual std::string leader_says(const std::string& name, const std::string& text) = 0;
  /// Waits until all have come here, however long that takes. Each name once.
  virtual void meet(const std::string& name) = 0;
};

/// Batches that ranks share out, when nothing adds up over them but in their order: batch b is that of rank
/// b mod ranks. All run as many, in rounds, as modules may gather weights in each.
struct RankShare {
  int64_t rank = 0, ranks = 1;

  struct Turn {
    int64_t batch;
    bool is_own;  // else others alone have one in this round, and the first is run along
  };
  int64_t rounds(int64_t batches) const { return (batches + ranks - 1) / ranks; }
  Turn turn(int64_t round, int64_t batches) const {
    const int64_t batch = round * ranks + rank;
    return batch < batches ? Turn{batch, true} : Turn{0, false};
  }
};
/// Null: one rank.
inline RankShare share_of(const Ranks* ranks) {
  return ranks == nullptr ? RankShare{} : RankShare{ranks->rank(), ranks->size()};
}

}  // namespace dtk
