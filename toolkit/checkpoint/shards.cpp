#include "toolkit/checkpoint/shards.h"

#include <algorithm>
#include <set>

#include "toolkit/checkpoint/manifest.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

constexpr char kListEnding[] = ".index.json";

[[noreturn]] void refuse_shards(const std::filesystem::path& path, const std::string& what) {
  throw FileError(shown(path) + ": " + what);
}

}  // namespace

bool is_shard_index(const std::filesystem::path& path) {
  return path.filename().string().ends_with(kListEnding);
}

std::vector<std::string> ShardIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  return {names.begin(), names.end()};
}

ShardIndex read_shard_index(FileSystem& files, const std::filesystem::path& path) {
  constexpr uint64_t max_bytes = uint64_t{64} << 20;
  constexpr int max_depth = 4;
  const nlohmann::json json = parse_strict_json(files.read(path, max_bytes), shown(path), max_depth);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
    refuse_shards(
        path, "no list of shards: \"weight_map\", names of tensors with the files they lie in, is not there");
  ShardIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>()))
      refuse_shards(path, fmt::format("{} lies in {}, which is no name of a file beside the list",
                                      in_quotes(tensor), in_quotes(json_line(file))));
    index.file_of[tensor] = file.get<std::string>();
  }
  return index;
}

std::vector<std::string> shard_names(const std::string& file, size_t count) {
  if (count == 1) return {file};
  const std::filesystem::path path = file;
  std::vector<std::string> names;
  for (size_t i = 1; i <= count; ++i)
    names.push_back(
        fmt::format("{}-{:05}-of-{:05}{}", path.stem().string(), i, count, path.extension().string()));
  return names;
}

std::string shard_index_name(const std::string& file) {
  return file + kListEnding;
}

std::string shard_index_text(const std::vector<std::string>& names,
                             const std::vector<std::vector<WrittenTensor>>& shards) {
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    for (const WrittenTensor& tensor : shards[i]) {
      map[tensor.name] = names[i];
      bytes += bytes_of_values(tensor.type, tensor.shape).value();
    }
  }
  return json_text({{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}});
}

std::vector<StoredTensor> open_shards(
    FileSystem& files, const std::filesystem::path& path,
    const std::function<std::vector<StoredTensor>(const std::filesystem::path& file)>& open) {
  const ShardIndex index = read_shard_index(files, path);
  std::map<std::string, std::string> found;  // by tensor, its file
  std::vector<StoredTensor> tensors;
  for (const std::string& name : index.files()) {
    const std::filesystem::path file = parent_of(path) / name;
    if (!files.exists(file)) refuse_shards(path, "its shard " + in_quotes(name) + " is not there");
    for (StoredTensor& tensor : open(file)) {
      const auto listed = index.file_of.find(tensor.name);
      if (listed == index.file_of.end())
        refuse_shards(path, fmt::format("{} holds {}, which the list has not", in_quotes(name),
                                        in_quotes(tensor.name)));
      const auto [before, is_new] = found.emplace(tensor.name, name);
      if (!is_new) {
        refuse_shards(path, fmt::format("{} lies in {} and in {}", in_quotes(tensor.name),
                                        in_quotes(before->second), in_quotes(name)));
      }
      if (listed->second != name) {
        refuse_shards(path, fmt::format("{} lies in {}, and the list says {}", in_quotes(tensor.name),
                                        in_quotes(name), in_quotes(listed->second)));
      }
      tensors.push_back(std::move(tensor));
    }
  }
  for (const auto& [tensor, file] : index.file_of) {
    if (found.count(tensor) == 0) refuse_shards(path, in_quotes(file) + " has not " + in_quotes(tensor));
  }
  return tensors;
}

}  // namespace dtk
