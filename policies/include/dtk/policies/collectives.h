// Collectives of ranks on a c10d backend: waited for at once, counted, and named where they fail.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <dtk/policies/internal/scoped.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace dtk::policies {

/// A collective that did not come to its end: another rank died, stands still, or cannot be reached.
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// What a backend's error says, without its place in a source and its own advice: "Connection closed by peer
/// [10.0.0.2]:5".
std::string collective_cause(const std::exception& error);

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
/// By collective: "alltoall", "broadcast", "allreduce", "send".
using TrafficByCollective = std::map<std::string, Traffic>;

/// All ranks call the same in the same order. For one thread. Each throws CollectiveError that begins with
/// `what`, such as "in the exchange of gradients". Tensors are contiguous, on the group's device.
class Collectives : NotCopied {
 public:
  explicit Collectives(c10::intrusive_ptr<c10d::Backend> group);
  ~Collectives();
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

  using Pending = c10::intrusive_ptr<c10d::Work>;
  /// Pieces of `from`, of so many elements for each rank, go to the ranks, and theirs come into `into`. Both
  /// tensors must stay until wait_for() is back.
  Pending begin_all_to_all(at::Tensor& into, at::Tensor& from, std::vector<int64_t> taken,
                           std::vector<int64_t> given, const char* what);
  /// Until its tensors have what they were sent; `pending` is empty then.
  void wait_for(Pending& pending, const char* what);
  /// Part r of `all`, which ends at element ends[r] and begins where the one before ends, is rank r's: each
  /// gives its own and takes the others'.
  void share_parts(const at::Tensor& all, const std::vector<int64_t>& ends, const char* what);
  /// The same, begun: `all` must stay until wait_for() is back from each.
  std::vector<Pending> begin_share_parts(const at::Tensor& all, const std::vector<int64_t>& ends,
                                         const char* what);
  /// Of few elements: each is then the sum over the ranks.
  void add_up(at::Tensor& values, const char* what);
  /// Rank `to` calls receive() with as many elements of the same type meanwhile; both wait.
  void send(const at::Tensor& values, int64_t to, const char* what);
  void receive(at::Tensor& values, int64_t from, const char* what);

  /// Since the beginning, by this rank, at least: what each pair of ranks by itself, or a ring, needs.
  const TrafficByCollective& sent() const { return sent_; }
  /// Of passes that a plan leaves out.
  void count(const TrafficByCollective& more);
  /// Seconds that this process waited for collectives, since the beginning.
  double waited_seconds() const { return waited_; }
  /// Whether one failed: what still runs of it may write into its tensors.
  bool has_failed() const { return has_failed_; }

 private:
  template <class Begin>
  void finish(const char* what, const Begin& begin);

  const c10::intrusive_ptr<c10d::Backend> group_;
  const int64_t rank_, ranks_;
  TrafficByCollective sent_;
  double waited_ = 0;
  bool has_failed_ = false;
};

/// Lets the memory of `tensor` and of its views go. A group's thread may hold work that was waited for, and
/// its tensors, for a moment longer.
void free_now(at::Tensor& tensor);

}  // namespace dtk::policies
