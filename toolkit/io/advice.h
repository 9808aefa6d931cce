// What to do about a file that is damaged, hostile or of a kind that is not read: the end of every such
// message.
#pragma once
#include <filesystem>
#include <string>

#include "toolkit/core/errors.h"
#include "toolkit/core/text.h"

namespace dtk {

constexpr char write_torch_file_again[] = "; get the file again, or write it again with torch.save";
constexpr char write_safetensors_again[] = "; get the file again, or write it again";
constexpr char save_npz_again[] = "; get the file again, or save it again with numpy.savez_compressed";
constexpr char save_npy_again[] = "; save it again with numpy.save";

/// Throws DataError "<path>: <what>".
[[noreturn]] inline void refuse_data(const std::filesystem::path& path, const std::string& what) {
  throw DataError(shown(path) + ": " + what);
}

}  // namespace dtk
