// Defaults that depend on other keys.
#pragma once
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

/// Gives `member`, which is `key`, a value for a reason that its origin says, unless the user wrote one.
template <class T>
void settle(LoadedConfig& loaded, const std::string& key, T& member, const T& value,
            const std::string& reason) {
  if (loaded.locations.count(key) > 0) return;
  member = value;
  loaded.origins[key] = {Origin::Source::by_default, reason};
}

}  // namespace dtk
