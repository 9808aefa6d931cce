// What the ranks of a run ask each other between steps; a run of one process asks itself.
#pragma once
#include <vector>

#include "toolkit/run/run.h"
#include "toolkit/train/trainer.h"

namespace dtk {

/// For the thread that trains. All ranks must come to what one asks of the others; `when` names the place in
/// the error of those that wait in vain: policies::CollectiveError.
class RunRanks {
 public:
  /// Both must outlive this.
  RunRanks(const RunWorld& world, const Trainer& trainer) : world_(world), trainer_(trainer) {}

  /// Of this rank.
  bool stop_requested() const { return world_.stop_requested && world_.stop_requested(); }
  /// Whether it is so at any rank.
  bool any(bool this_one, const char* when) const;
  /// Whether it is so at the leader.
  bool leaders(bool this_one, const char* when) const;
  /// What each rank says, by rank.
  std::vector<std::vector<double>> all_say(const std::vector<double>& own, const char* when) const;
  /// In the midst of passes without gradients: where their modules gather weights, all ranks leave at once.
  bool may_go_on(const char* when) const;

 private:
  const RunWorld& world_;
  const Trainer& trainer_;
};

}  // namespace dtk
