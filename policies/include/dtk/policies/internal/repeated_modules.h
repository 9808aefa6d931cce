// Which modules a model repeats, as a transformer its blocks: by their parameters, whatever their names.
#pragma once
#include <dtk/policies/policy.h>

#include <string>
#include <vector>

namespace dtk::policies {

/// The entries of `paths`, in their order, that follow a sibling with equally named parameters of equal
/// shapes, or are followed by one; of modules within each other the outer ones. A sibling is at the same
/// place of the tree ("blocks.3", "blocks.4"; "stem", "layer1"). Modules of one layer are left out: backward
/// needs their input anyway. `parameters`: by name, those of a module begin with its path.
std::vector<std::string> repeated_modules(const std::vector<std::string>& paths,
                                          const NamedTensors& parameters);

}  // namespace dtk::policies
