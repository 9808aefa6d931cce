// Weights that are cut into several files, with a list of what lies where, as transformers writes them:
// {"metadata": ..., "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

/// Whether a path has the name of such a list.
bool is_shard_index(const std::filesystem::path& path);

/// A list: the file of each tensor, beside it.
struct ShardIndex {
  std::map<std::string, std::string> file_of;  // by tensor
  std::vector<std::string> files() const;      // each once
};

/// Throws FileError that begins with `path`: no such list, or a file of it that is no plain name and so may
/// lie elsewhere.
ShardIndex read_shard_index(FileSystem& files, const std::filesystem::path& path);

/// Of `count` files that a file such as "model.safetensors" is cut into: "model-00001-of-00003.safetensors"
/// and so on; one is the file itself.
std::vector<std::string> shard_names(const std::string& file, size_t count);
/// Of the list that lies beside several: "model.safetensors.index.json".
std::string shard_index_name(const std::string& file);
/// Its text; `shards`: what each of `names` holds.
std::string shard_index_text(const std::vector<std::string>& names,
                             const std::vector<std::vector<WrittenTensor>>& shards);

/// All tensors, in the list's order; `open` opens one file of it. Throws FileError that begins with `path`
/// for a file that is not there, a tensor that its file has not, one that two files have, and one that the
/// list has not.
std::vector<StoredTensor> open_shards(
    FileSystem& files, const std::filesystem::path& path,
    const std::function<std::vector<StoredTensor>(const std::filesystem::path& file)>& open);

}  // namespace dtk
