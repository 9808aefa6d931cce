#include "toolkit/config/locations.h"

namespace dtk {

ConfigError located(const policies::PolicyError& error, const std::map<std::string, std::string>& locations) {
  const std::string text = error.what();
  const std::string key = text.substr(0, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."));
  for (const std::string& written : {key, key + ".enabled"}) {
    const auto place = locations.find(written);
    if (place != locations.end()) return ConfigError(place->second + ": " + text);
  }
  return ConfigError(text);
}

}  // namespace dtk
