// What each chosen module keeps for backward, by policies.checkpoint.keep.
#pragma once
#include <dtk/policies/options/checkpoint_options.h>

#include <string>
#include <vector>

namespace dtk::policies {

struct SegmentChoice {
  bool all = false;                     // everything, and nothing is recomputed; else inputs and `names`
  bool offload = false;                 // in host memory
  std::vector<std::string> names = {};  // of results, and operators, in the order in which they were written

  friend bool operator==(const SegmentChoice&, const SegmentChoice&) = default;
};

/// Those of `paths`, in their order. Throws PolicyError for "auto", an empty list, an entry that is empty or
/// there twice, and a pattern that none of `paths` matches (with near ones).
std::vector<SegmentChoice> choices_of(const SegmentKeeps& keep, const std::vector<std::string>& paths);

}  // namespace dtk::policies
