#include "toolkit/launch/shipped.h"

#include <algorithm>
#include <system_error>

namespace dtk::launch {

namespace fs = std::filesystem;

fs::path configurations_of(const fs::path& program) {
  const fs::path folder = program.parent_path();
  // Of a build folder; of a wheel's programs; of an installation's; of an installation's launcher.
  for (const char* place :
       {"../../configs", "../configs", "../../share/dit-train/configs", "../share/dit-train/configs"}) {
    std::error_code ignored;
    if (fs::exists(folder / place / "base.toml", ignored)) return fs::weakly_canonical(folder / place);
  }
  return {};
}

std::vector<std::string> configuration_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".toml") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace dtk::launch
