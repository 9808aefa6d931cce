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

std::string with_users_location(const std::string& message, const std::string& name,
                                const LoadedConfig& loaded) {
  for (const auto& [key, printed] : parse_config(print_config(loaded), name, {}).locations) {
    const std::string begin = printed + ": ";
    if (message.rfind(begin, 0) != 0) continue;
    const auto place = loaded.locations.find(key);
    return (place == loaded.locations.end() ? "" : place->second + ": ") + message.substr(begin.size());
  }
  return message;
}

}  // namespace dtk
