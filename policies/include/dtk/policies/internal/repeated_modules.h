// Which modules a model repeats, as a transformer its blocks: by their parameters, whatever their names.
#pragma once
#include <dtk/policies/policy.h>

#include <string>
#include <vector>

namespace dtk::policies {

/// The entries of `paths`, in their order, that follow a sibling with equally named parameters of equal
/// shapes, or are followed by one. A sibling is at the same place of the tree ("blocks.3", "blocks.4";
/// "stem", "layer1"). Of modules within each other those are taken that are more and hold most of the
/// parameters: the blocks of two equal towers, not the towers. Modules of one layer are left out: backward
/// needs their input anyway. What differs by its first member, as the stages of a ResNet do, is found but for
/// that member; blocks of two kinds in turns are not. `parameters`: by name, those of a module begin with its
/// path; where none does, modules that are numbered ("blocks.0", "blocks.1") are taken to repeat.
std::vector<std::string> repeated_modules(const std::vector<std::string>& paths,
                                          const NamedTensors& parameters);

/// Whether any of `parameters` is named as one of the modules `paths`: else nothing is known of these.
bool are_named_by_paths(const NamedTensors& parameters, const std::vector<std::string>& paths);

}  // namespace dtk::policies
