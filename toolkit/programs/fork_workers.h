// Independent pieces of work in several processes, for what cannot run twice in one.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtk {

/// What `work(i)` returns for each i below `count`, by copies of this process, at most one a processor and
/// four in all. Nothing where a copy did not deliver it, because it threw or ended: the caller does that
/// piece itself and sees why. Nothing at all, and no copy, if this process has a second thread already: a
/// copy has only the one that asks, and would wait for the others for ever.
std::vector<std::optional<std::string>> side_by_side(size_t count,
                                                     const std::function<std::string(size_t)>& work);

}  // namespace dtk
