#include "toolkit/train/drawing.h"

#include <filesystem>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {

void check_out_folder(FileSystem& files, const std::string& out) {
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (folder.empty() || files.exists(folder)) return;
  throw ConfigError(fmt::format("--out {}: the folder {} does not exist; create it", out, folder.string()));
}

}  // namespace dtk
