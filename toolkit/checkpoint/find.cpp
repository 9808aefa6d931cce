#include "toolkit/checkpoint/find.h"

#include "toolkit/checkpoint/store.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

bool is_a_file(FileSystem& files, const Path& path) {
  return files.exists(path) && !files.is_folder(path);
}

/// Where checkpoints are of which `path` names one by its step: those beside it, and those of the run.
std::map<int64_t, Path> checkpoints_about(FileSystem& files, const Path& path) {
  const Path before = parent_of(path);
  if (is_a_file(files, before)) return {};
  auto found = checkpoints_by_step(files, before);
  return found.empty() ? checkpoints_by_step(files, before / checkpoints_folder) : found;
}

/// "runs/a/checkpoints, which has step-00000010, step-00000020 and 7 older ones"
std::string newest_of(const std::map<int64_t, Path>& found) {
  constexpr size_t shown = 3;
  std::vector<std::string> names;
  for (auto entry = found.rbegin(); entry != found.rend() && names.size() < shown; ++entry)
    names.insert(names.begin(), entry->second.filename().string());
  if (found.size() > shown) names.push_back(fmt::format("{} older", found.size() - shown));
  const Path folder = found.rbegin()->second.parent_path();
  return (folder == "." ? "this folder" : folder.string()) + ", which has " + listed(names, " and ");
}

}  // namespace

std::optional<Path> checkpoint_in(FileSystem& files, const Path& given) {
  const Path folder = without_slash(given);
  if (is_a_file(files, folder)) return std::nullopt;
  // A damaged one is found too: opening it says what is wrong.
  if (files.exists(folder) && has_checkpoint_name(folder)) return folder;
  if (files.exists(folder / "manifest.json")) return folder;
  if (const auto latest = latest_checkpoint(files, folder / checkpoints_folder)) return latest;
  if (folder.filename() == checkpoints_folder) return latest_checkpoint(files, folder);
  const std::optional<int64_t> step = step_named(folder.filename().string());
  if (!step || files.exists(folder)) return std::nullopt;
  const auto about = checkpoints_about(files, folder);
  const auto found = about.find(*step);
  return found == about.end() ? std::nullopt : std::optional(found->second);
}

std::string why_no_checkpoint(FileSystem& files, const Path& given) {
  const Path folder = without_slash(given);
  if (is_a_file(files, folder)) return "a file, and a checkpoint is a folder";
  if (step_named(folder.filename().string()) && !files.exists(folder)) {
    const auto about = checkpoints_about(files, folder);
    if (!about.empty()) return "no such checkpoint in " + newest_of(about);
    return "no such folder, and no checkpoint beside it";
  }
  const bool of_checkpoints = folder.filename() == checkpoints_folder;
  return "no complete checkpoint in " + (of_checkpoints ? folder : folder / checkpoints_folder).string();
}

Path find_checkpoint(FileSystem& files, const std::string& what, const std::string& out) {
  const Path folder = policies::parse_enum<ResumeWord>(what) == ResumeWord::latest ? out : what;
  if (const auto found = checkpoint_in(files, folder)) return *found;
  throw ConfigError(
      fmt::format("--resume {}: {}; name a run folder or a checkpoint folder, or start anew without --resume",
                  what, why_no_checkpoint(files, folder)));
}

}  // namespace dtk
