#include <dtk/toolkit/policy_places.h>

namespace dtk {

ConfigError with_place(const policies::PolicyError& error, const std::map<std::string, std::string>& places) {
  const std::string text = error.what();
  const std::string key = text.substr(0, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."));
  for (const std::string& written : {key, key + ".enabled"}) {
    const auto place = places.find(written);
    if (place != places.end()) return ConfigError(place->second + ": " + text);
  }
  return ConfigError(text);
}

}  // namespace dtk
