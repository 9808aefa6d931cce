#include "toolkit/config/locations.h"

namespace dtk {

ConfigError located(const policies::PolicyError& error, const std::map<std::string, std::string>& locations) {
  for (const std::string& written : {error.key, error.key + ".enabled"}) {
    const auto location = locations.find(written);
    if (location != locations.end()) return ConfigError(location->second + ": " + error.what());
  }
  return ConfigError(error.what());
}

}  // namespace dtk
