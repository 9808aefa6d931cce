// The activation checkpointing policy: which of a model's sub-trees are segments of checkpoint.h.
#pragma once
#include <dtk/policies/checkpoint_options.h>
#include <dtk/policies/policy.h>
#include <dtk/policies/seam.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dtk::policies {

/// The first forward pass of each sub-tree with gradients is watched for batch norms that update running
/// statistics, which a recomputation would update again: they end in a PolicyError, unless the sub-tree asks
/// recomputing() (checkpoint.h). Other state that a forward pass changes is not found out.
class CheckpointPolicy final : public Policy {
 public:
  /// `paths`: the model's sub-trees in order of execution. Throws PolicyError when a target matches nothing
  /// (the default's may, then the policy is inactive unless it was asked for), when `every` or `segment` is
  /// out of range or exceeds the number of matches, when no two matches that `every` leaves are neighbours
  /// and `segment` asks for more than one, and when keep = "all" makes a policy that was asked for keep
  /// everything.
  CheckpointPolicy(const CheckpointOptions& options, const std::vector<std::string>& paths);

  std::string name() const override { return "checkpoint"; }
  PolicyReport report() const override;

  /// The segments, each a list of consecutive paths.
  const std::vector<std::vector<std::string>>& segments() const { return segments_; }

 protected:
  void put_in(Seam& seam) override;

 private:
  CheckpointOptions options_;
  std::vector<std::vector<std::string>> segments_;
  std::string reason_;
};

}  // namespace dtk::policies
