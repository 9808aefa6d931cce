// Options of the activation checkpointing policy, free of LibTorch.
#pragma once
#include <dtk/policies/enabled.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dtk::policies {

struct CheckpointOptions {
  Enabled enabled = Enabled::by_default;
  // Globs over module paths; * stands for one component. Of a DiT the blocks only: embedders and final layer
  // are small, and a segment of one operator costs more than it saves.
  std::vector<std::string> targets = {"blocks.*"};
  // Checkpoint each match (1), or each k-th in module order.
  int64_t every = 1;
  // Consecutive matches in one segment. More than 1 keeps fewer inputs, but backward then holds what all of
  // them save at once: the peak is lower only where the inputs not kept weigh more than that.
  int64_t segment = 1;
  // What a segment keeps besides its inputs: "block" nothing, "all" everything (no recomputation).
  std::string keep = "block";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [enabled, targets, every, segment, keep] = self;
    visit("enabled", enabled, "\"default\" | true | false");
    visit("targets", targets, "");
    visit("every", every, "[1, inf)");
    visit("segment", segment, "[1, inf)");
    visit("keep", keep, "all | block");
  }
  friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

}  // namespace dtk::policies
