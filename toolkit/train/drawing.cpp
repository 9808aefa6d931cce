#include "toolkit/train/drawing.h"

#include <filesystem>

#include "toolkit/core/errors.h"

namespace dtk {

void check_out_folder(FileSystem& files, const std::string& out) {
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (folder.empty() || files.exists(folder)) return;
  throw ConfigError("--out " + out + ": the folder " + folder.string() + " does not exist; create it");
}

std::string count_of(int64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

}  // namespace dtk
