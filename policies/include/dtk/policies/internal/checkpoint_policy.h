// The activation checkpointing policy: which of a model's modules are segments of checkpoint.h, with
// keep = "offload" of offload.h, and with "offload" in a list of both.
#pragma once
#include <dtk/policies/internal/kept_results.h>
#include <dtk/policies/options/checkpoint_options.h>
#include <dtk/policies/policy.h>
#include <dtk/policies/seam.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dtk::policies {

class OffloadStore;
struct SegmentChoice;

/// Modules within a chosen one may be chosen too: then segments nest.
class CheckpointPolicy final : public Policy {
 public:
  /// `paths`: the model's modules in order of execution; `parameters`, by name, tell which of them repeat,
  /// where no targets are named. Throws PolicyError when a target matches nothing or nothing repeats (then,
  /// unless it was asked for, the policy is inactive instead), when `every` or `segment` is
  /// out of range or exceeds the number of matches, when `keep` is no choice, "auto", an empty list, or has a
  /// pattern that no chosen module matches or an operator that cannot be kept (KeptResults), when
  /// `offload_min_bytes` is negative, when no two matches that `every` leaves are neighbours and `segment`
  /// asks for more than one, when `segment` would join a module and one within it, and when keep = "all"
  /// makes a policy that was asked for keep everything.
  CheckpointPolicy(const CheckpointOptions& options, const std::vector<std::string>& paths,
                   const NamedTensors& parameters = {});

  std::string name() const override { return "checkpoint"; }
  /// At its end a segment that the forward pass left unfinished is closed.
  std::unique_ptr<PolicyScope> forward_scope() override;
  /// Throws PolicyError for an entry of `keep` that no segment had so far; where the policy was asked for,
  /// also if no forward pass so far has saved memory by it, and for a target that was named and ran without a
  /// graph.
  void before_step() override;
  PolicyReport report() const override;

  /// The segments, each a list of consecutive paths. A forward pass may leave members out or run them twice:
  /// what follows then is a segment of its own.
  const std::vector<std::vector<std::string>>& segments() const { return segments_; }

 protected:
  void put_in(Seam& seam) override;

 private:
  struct OpenSegment;
  struct Effect;
  struct Place;
  using Places = std::map<std::string, Place, std::less<>>;
  class Within;
  struct Kept {  // by the modules of a segment
    bool recomputes = false;
    std::shared_ptr<KeptResults> results;  // null: none
    std::shared_ptr<OffloadStore> store;   // null: on the device
  };
  void add_kept(const SegmentChoice& choice);
  bool recomputes() const;  // some of them
  bool has_effect() const;
  bool moves_as_asked() const;    // to host memory, if it was asked to
  std::string no_effect() const;  // why there is none
  std::string without_graph() const;
  CheckpointOptions options_;
  std::vector<std::vector<std::string>> segments_;
  std::string reason_;
  std::vector<Kept> kept_;                                                    // by segment
  std::map<std::vector<std::string>, std::shared_ptr<KeptResults>> results_;  // by what they name
  std::shared_ptr<OffloadStore> store_;      // null: nothing waits in host memory
  const std::shared_ptr<OpenSegment> open_;  // shared with the seam
  std::shared_ptr<Effect> effect_;           // likewise
};

}  // namespace dtk::policies
