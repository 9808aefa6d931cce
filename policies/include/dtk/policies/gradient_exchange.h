// Gradients of several ranks, added in the order of their micro-batches: whatever the number of ranks, the
// sums have the bits that one rank has which runs all of them. In a program of your own, on a c10d backend of
// yours, where micro-batch m is run by rank m mod ranks:
//
//   GradientExchange exchange(group, parameters);
//   for (int64_t first = 0; first < micro_batches; first += ranks) {
//     exchange.begin_round({contributes, /*is_last=*/first + ranks >= micro_batches});
//     if (contributes[rank]) loss_of(first + rank).backward();  // a part of the mean over the step
//     exchange.end_round();
//   }
//   optimizer.step();  // every rank has the whole sums
//   exchange.release();
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <dtk/policies/gradient_sums.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/policy.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace c10d {
class Backend;
}

namespace dtk::policies {

/// A collective that did not come to its end: another rank died, stands still, or cannot be reached.
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// What a backend's error says, without its place in a source and its own advice: "Connection closed by peer
/// [10.0.0.2]:5".
std::string collective_cause(const std::exception& error);

/// As many micro-batches as there are ranks, or the fewer that a step ends with.
struct MicroBatchRound {
  // By rank: whether its micro-batch has a loss; false: it has no samples, or of no weight.
  std::vector<bool> contributes;
  bool is_last = true;  // of the step: the gradients are whole behind it
};

/// What a rank sends to others.
struct Traffic {
  int64_t bytes = 0, messages = 0;
  Traffic& operator+=(const Traffic& more) {
    bytes += more.bytes;
    messages += more.messages;
    return *this;
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
/// By collective: "alltoall", "broadcast", "allreduce".
using TrafficByCollective = std::map<std::string, Traffic>;

class GradientExchange : NotCopied {
 public:
  /// `parameters`: those of one model, in the same order at each rank; what needs no gradient is left alone.
  /// Throws PolicyError for one that is not fp32 and contiguous. Gradients lie in units: neighbours, one
  /// after the other, each at a multiple of 64 elements (256 bytes), of which rank r of W adds up cells
  /// [ceil(r C / W), ceil((r + 1) C / W)) of 64 elements, of C.
  GradientExchange(c10::intrusive_ptr<c10d::Backend> group, const NamedTensors& parameters,
                   const ExchangeOptions& options = {});
  ~GradientExchange();

  /// Before each backward pass: one follows, at the ranks that contribute; a second is an error. While it
  /// runs, the gradients of a unit that is ready are sent, and let go: from the last unit to the first, in
  /// this order at each rank, so that a unit waits for those behind it. Ordered, a rank holds P / W bytes of
  /// sums between two rounds (P: bytes of all units); beside them a pass takes the bytes of the units that
  /// wait, and twice those of the one that is sent. Native, it holds the gradients themselves between two
  /// rounds, and only the last round sends.
  void begin_round(MicroBatchRound round);
  /// What the others send is taken by ranks without a backward pass, too. Behind the last round the
  /// parameters' gradients are the whole sums, P bytes, views of their unit's storage, equal at each rank.
  /// Throws PolicyError naming the parameters that a pass did not reach, and CollectiveError.
  void end_round();

  /// `own` of the ranks that contribute to the running round, on the group's device: set before end_round(),
  /// and valid behind it until the next round, as (W), 0 for those that do not. Reads no value.
  void set_value(const at::Tensor& own);
  const at::Tensor& values() const { return values_; }

  /// Lets all gradients go, those of a step that threw, too.
  void release();

  /// Since the beginning, by this rank, at least: what each pair of ranks by itself, or a ring, needs.
  const TrafficByCollective& sent() const { return sent_; }
  /// Counts what the latest round sent `rounds` times more: of passes that a plan leaves out.
  void count_again(int64_t rounds);
  /// Seconds that this process waited for collectives, since the beginning.
  double waited_seconds() const { return waited_; }

 private:
  struct Unit;
  void accumulated(Unit& unit, size_t member);
  void send_ready();
  void send(Unit& unit);
  void take(Unit& unit, size_t member);
  void refuse_missed() const;
  void add_up(Unit& unit);
  void gather(Unit& unit);
  void reduce(Unit& unit);
  void hand_out(Unit& unit);
  int64_t contributors() const;
  void count(const char* collective, int64_t bytes, int64_t messages);
  template <class Begin>
  void finish(const char* what, const Begin& begin);

  const c10::intrusive_ptr<c10d::Backend> group_;
  const int64_t rank_, ranks_;
  const GradientSums sums_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::shared_ptr<const void> alive_;  // of the calls from backward
  at::Tensor values_;
  MicroBatchRound round_;
  bool in_round_ = false, had_gradients_ = false;  // had_gradients_: some round of the step had
  bool has_failed_ = false;                        // a collective
  size_t unsent_ = 0;  // units that the round has yet to send, which are the first
  TrafficByCollective sent_, sent_before_round_;
  double waited_ = 0;
};

}  // namespace dtk::policies
