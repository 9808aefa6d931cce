#include "toolkit/config/locations.h"

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

std::string with_users_place(const std::string& message, const std::string& name,
                             const LoadedConfig& loaded) {
  for (const auto& [key, printed] : parse_config(print_config(loaded), name, {}).places) {
    const std::string begin = printed + ": ";
    if (message.rfind(begin, 0) != 0) continue;
    const auto place = loaded.places.find(key);
    return (place == loaded.places.end() ? "" : place->second + ": ") + message.substr(begin.size());
  }
  return message;
}

}  // namespace dtk
