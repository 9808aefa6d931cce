#include "toolkit/families/diffusion_planner/frame_list.h"

#include <algorithm>
#include <map>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"

namespace dtk::diffusion_planner {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* wanted_list = "; wanted: a JSON list of paths of .npz files, as [\"a.npz\", \"b.npz\"]";

[[noreturn]] void fail_list(const fs::path& path, const std::string& what) {
  throw DataError(path.string() + ": " + what);
}

FrameList frames_of_folder(const fs::path& folder) {
  FrameList found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const bool hidden = it->path().filename().string().starts_with('.');
    if (!hidden && it->path().extension() == ".npz") found.frames.push_back(it->path().string());
  }
  if (error) fail_list(folder, "cannot be listed: " + error.message() + "; check its permissions");
  if (found.frames.empty())
    fail_list(folder, "holds no .npz file; give the folder of the frames, or a JSON list of them");
  std::sort(found.frames.begin(), found.frames.end());
  return found;
}

Json read_list(const fs::path& list) try {
  constexpr int max_depth = 8;                  // a list of lists is to be told from a list with damage
  constexpr uint64_t most = uint64_t{1} << 30;  // ten million paths
  return parse_strict_json(posix_file_system().read(list, most), list.string(), max_depth);
} catch (const FileError& error) {
  throw DataError(error.what() + std::string(wanted_list));
}

/// Tells which paths lead out of a folder. A folder's real place is looked up once.
class Inside {
 public:
  explicit Inside(const fs::path& folder) : folder_(real(folder.empty() ? "." : folder)) {}

  bool holds(const fs::path& path) {
    std::error_code none;
    if (fs::is_symlink(fs::symlink_status(path, none))) return is_below(real(path));
    const auto [known, is_new] = known_.try_emplace(path.parent_path().string(), false);
    if (is_new) known->second = is_below(real(path.parent_path()));
    return known->second;
  }

 private:
  static fs::path real(const fs::path& path) {
    std::error_code none;
    fs::path found = fs::weakly_canonical(path, none);
    return found.empty() ? path : found;
  }
  bool is_below(const fs::path& path) const {
    return std::mismatch(folder_.begin(), folder_.end(), path.begin(), path.end()).first == folder_.end();
  }

  const fs::path folder_;
  std::map<std::string, bool> known_;
};

FrameList frames_of_list(const fs::path& list) {
  const Json entries = read_list(list);
  if (!entries.is_array())
    fail_list(list, std::string("holds no list but one JSON ") + entries.type_name() + wanted_list);
  if (entries.empty()) fail_list(list, "the list is empty; give at least one frame");
  FrameList found;
  found.list = list;
  found.frames.reserve(entries.size());
  const fs::path folder = list.parent_path();
  Inside inside(folder);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].is_string()) {
      throw DataError(
          fmt::format("{}no text but one JSON {}{}", found.place(i), entries[i].type_name(), wanted_list));
    }
    const auto& text = entries[i].get_ref<const std::string&>();
    if (text.empty() || text.find('\0') != text.npos) {
      throw DataError(fmt::format("{}{} is no path{}", found.place(i), in_quotes(text), wanted_list));
    }
    found.frames.push_back((folder / text).string());
    if (inside.holds(found.frames.back())) continue;
    if (++found.outside == 1) found.first_outside = text;
  }
  return found;
}

}  // namespace

std::string FrameList::place(size_t index) const {
  return list.empty() ? "" : fmt::format("{}: entry {}: ", list.string(), index);
}

FrameList read_frame_list(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    fail_list(path, "no such file or folder; give the folder of the frames, or a JSON list of them");
  return fs::is_directory(status) ? frames_of_folder(path) : frames_of_list(path);
}

}  // namespace dtk::diffusion_planner
