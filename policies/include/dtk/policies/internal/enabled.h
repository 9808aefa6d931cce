// The switch every policy has.
#pragma once

namespace dtk::policies {

/// Three states: only `on` and `off` were asked for by the user; a policy that is asked for and has no
/// effect is an error, a default without effect is a line in the report.
enum class Enabled { by_default, on, off };

}  // namespace dtk::policies
