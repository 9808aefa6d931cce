// Gradients of several ranks, added in the order of their micro-batches: whatever the number of ranks, the
// sums have the bits that one rank has which runs all of them. In a program of your own, on a c10d backend of
// yours, where micro-batch m is run by rank m mod ranks:
//
//   Shards shards(group, parameters);
//   PolicySet policies(options, {device, parameters, paths, true, &shards}, seam);
//   optimizer over shards.own()
//   GradientExchange exchange(shards);
//   for (int64_t first = 0; first < micro_batches; first += ranks) {
//     exchange.begin_round({contributes, /*is_last=*/first + ranks >= micro_batches});
//     if (contributes[rank]) loss_of(first + rank).backward();  // a part of the mean over the step
//     exchange.end_round();
//   }
//   policies.step(optimizer);  // of the own parts; then the weights are gathered
//   exchange.release();
//
// The norm of an own part is not the norm: Shards::add_up() adds those of all ranks.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/internal/gradient_sums.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/shards.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace dtk::policies {

/// As many micro-batches as there are ranks, or the fewer that a step ends with.
struct MicroBatchRound {
  // By rank: whether its micro-batch has a loss; false: it has no samples, or of no weight.
  std::vector<bool> contributes;
  bool is_last = true;  // of the step: the gradients are whole behind it
};

class GradientExchange : NotCopied {
 public:
  /// `shards`, of a group, must outlive this.
  GradientExchange(Shards& shards, GradientSums sums = GradientSums::ordered);
  ~GradientExchange();

  /// Before each backward pass: one follows, at the ranks that contribute; a second is an error. Of divided
  /// weights (ShardLayout::level) one follows at each rank: at one that does not contribute it is of
  /// whatever samples, and counts for nothing. While it runs, the gradients of a unit that is ready are sent,
  /// and let go: from the last unit to the first, in this order at each rank, so that a unit waits for those
  /// behind it. Ordered, a rank holds P / W bytes of
  /// sums between two rounds (P: bytes of all units); beside them a pass takes the bytes of the units that
  /// wait, and twice those of the two that are on their way: one is until the next but one is sent. Native,
  /// it holds the gradients themselves between two rounds, and only the last round sends.
  void begin_round(MicroBatchRound round);
  /// What the others send is taken by ranks without a backward pass, too. Behind the last round the
  /// gradients of Shards::own() are the sums: P / W bytes, or P where nothing is divided, views of their
  /// unit's storage. Throws PolicyError naming the parameters that a pass did not reach, and CollectiveError.
  void end_round();

  /// `own` of the ranks that contribute to the running round, on the group's device: set before end_round(),
  /// and valid behind it until the next round, as (W), 0 for those that do not. Reads no value.
  void set_value(const at::Tensor& own);
  const at::Tensor& values() const { return values_; }

  /// Lets all gradients go, those of a step that threw, too.
  void release();

  /// Counts what the latest round sent `rounds` times more: of passes that a plan leaves out.
  void count_again(int64_t rounds);

 private:
  struct Unit;
  void accumulated(Unit& unit, size_t member);
  void send_ready();
  void send(Unit& unit);
  void take(Unit& unit, size_t member);
  void put_aside();
  void put_back(size_t parameter);
  void refuse_missed() const;
  void depart(Unit& unit);
  void arrive_first();
  void complete(Unit& unit);
  void gather(Unit& unit);
  void hand_out(Unit& unit);
  at::Tensor empty(int64_t elements) const;

  Shards& shards_;
  Collectives& collectives_;
  const size_t rank_;
  const GradientSums sums_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::shared_ptr<const void> alive_;  // of the calls from backward
  at::Tensor values_;
  MicroBatchRound round_;
  bool in_round_ = false;
  std::vector<at::Tensor> aside_;  // gradients of passes before, in a round without the rank's own
  std::vector<bool> adds_;         // by rank: whether it has something of what is sent next
  std::deque<Unit*> on_their_way_;
  size_t unsent_ = 0;  // units that the round has yet to send, which are the first
  TrafficByCollective sent_before_round_;
};

}  // namespace dtk::policies
