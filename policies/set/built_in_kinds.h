// The policies that are there without being registered.
#pragma once
#include <dtk/policies/policy_kind.h>

#include <vector>

namespace dtk::policies {

std::vector<const PolicyKind*> built_in_kinds();

}  // namespace dtk::policies
