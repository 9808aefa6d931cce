// Which checkpoint a user means by a path.
#pragma once
#include <dtk/policies/enum_text.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "toolkit/io/file_system.h"

namespace dtk {

/// The folder of a run that holds its checkpoints.
inline constexpr char checkpoints_folder[] = "checkpoints";

/// The checkpoint that `given` names, whole or damaged: the folder of one, else the latest of a run's folder
/// or of its folder of checkpoints. "step-9" is step-00000009 of the run or of the folder of checkpoints
/// before it, unless something has just that path. Empty if it names none.
std::optional<std::filesystem::path> checkpoint_in(FileSystem& files, const std::filesystem::path& given);

/// Why checkpoint_in() found none: "no complete checkpoint in runs/a/checkpoints".
std::string why_no_checkpoint(FileSystem& files, const std::filesystem::path& given);

/// What --resume says where it names no folder.
enum class ResumeWord { latest, automatic };
constexpr auto enum_texts(ResumeWord) {
  return std::array{"latest", "auto"};
}

/// The checkpoint that --resume `what` means: "latest" in the run folder `out`, or as checkpoint_in(). Throws
/// ConfigError if there is none.
std::filesystem::path find_checkpoint(FileSystem& files, const std::string& what, const std::string& out);

}  // namespace dtk
