#include "toolkit/train/drawing.h"

#include <filesystem>

#include "toolkit/core/errors.h"

namespace dtk {

void check_out_folder(FileSystem& files, const std::string& out) {
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (folder.empty() || files.exists(folder)) return;
  throw ConfigError("--out " + out + ": the folder " + folder.string() + " does not exist; create it");
}

}  // namespace dtk
