#include "toolkit/checkpoint/base.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/json.h"
#include "toolkit/io/sha256.h"

namespace dtk {
namespace {

using BaseJson = nlohmann::ordered_json;

constexpr int64_t kBaseVersion = 1;

[[noreturn]] void refuse_base(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{}: {}; resume another checkpoint", path, what));
}

std::string text_at(const nlohmann::json& json, const char* key, const std::string& path) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (!json.is_object() || found == json.end() || !found->is_string())
    refuse_base(path, in_quotes(key) + " is no text");
  return found->get<std::string>();
}

BaseFile file_in(const nlohmann::json& json, const std::string& path) {
  BaseFile file{text_at(json, "path", path), 0, text_at(json, "sha256", path)};
  const auto bytes = json.contains("bytes") ? whole_number(json.at("bytes")) : std::nullopt;
  if (!bytes || *bytes < 0) refuse_base(path, "\"bytes\" is no number of bytes");
  file.bytes = static_cast<uint64_t>(*bytes);
  return file;
}

// Lists and their files keep their places to each other.
void find_in(FileSystem& files, const std::filesystem::path& folder, BaseWeights& base) {
  const std::filesystem::path there = std::filesystem::path(base.path).parent_path();
  const auto find = [&](std::string& path, std::optional<uint64_t> bytes) {
    if (files.exists(path) && (!bytes || files.size(path) == *bytes)) return;
    const std::filesystem::path of_list = std::filesystem::path(path).lexically_relative(there);
    if (of_list.empty() || *of_list.begin() == "..") return;
    const std::filesystem::path now = folder / of_list;
    if (files.exists(now)) path = now.lexically_normal().string();
  };
  const bool is_file = base.files.size() == 1 && base.files.front().path == base.path;
  for (BaseFile& file : base.files) find(file.path, file.bytes);
  if (is_file) {
    base.path = base.files.front().path;
  } else {
    find(base.path, std::nullopt);
  }
}

}  // namespace

BaseWeights base_of(FileSystem& files, const Weights& weights) {
  BaseWeights base{std::filesystem::absolute(weights.path).lexically_normal().string(), weights.key, {}};
  for (const std::filesystem::path& path : weights.files) {
    const uint64_t bytes = files.size(path);
    base.files.push_back({std::filesystem::absolute(path).lexically_normal().string(), bytes,
                          sha256_of_file(files, path, bytes)});
  }
  return base;
}

std::string base_text(const BaseWeights& base) {
  BaseJson json = {{"version", kBaseVersion}, {"path", base.path}, {"key", base.key}};
  json["files"] = BaseJson::array();
  for (const BaseFile& file : base.files)
    json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  return json_text(json, NotUtf8::replaced);
}

BaseWeights parse_base(std::string_view text, const std::string& path) {
  constexpr int max_depth = 4;
  const nlohmann::json json = parse_strict_json(text, path, max_depth);
  BaseWeights base{text_at(json, "path", path), text_at(json, "key", path), {}};
  const auto version = json.contains("version") ? whole_number(json.at("version")) : std::nullopt;
  if (version != kBaseVersion)
    refuse_base(path, fmt::format("this program reads version {} of such a file", kBaseVersion));
  if (!json.contains("files") || !json.at("files").is_array() || json.at("files").empty())
    refuse_base(path, "\"files\" is no list of files");
  for (const nlohmann::json& file : json.at("files")) base.files.push_back(file_in(file, path));
  return base;
}

std::filesystem::path folder_for_base(const std::filesystem::path& checkpoint) {
  return std::filesystem::absolute(checkpoint).lexically_normal().parent_path().parent_path();
}

Weights open_base(FileSystem& files, BaseWeights& base, const std::filesystem::path& folder,
                  const std::string& place, int within) {
  const std::string begin =
      fmt::format("{}: the frozen weights of this run are those of {}, and ", place, base.path);
  find_in(files, folder, base);
  for (const BaseFile& file : base.files) {
    if (!files.exists(file.path))
      throw ConfigError(fmt::format("{}{} is not there; put it back where it was, or into {}", begin,
                                    file.path, shown(folder)));
    const uint64_t bytes = files.size(file.path);
    if (bytes == file.bytes && sha256_of_file(files, file.path, bytes) == file.sha256) continue;
    throw ConfigError(begin + file.path +
                      " has changed since (its SHA-256 differs); put back the file that it was");
  }
  Weights weights = open_weights(files, {base.path, base.key, place, place, "\"key\"", within});
  for (const std::filesystem::path& file : weights.files) {
    const std::string path = std::filesystem::absolute(file).lexically_normal().string();
    const bool is_known = std::any_of(base.files.begin(), base.files.end(),
                                      [&](const BaseFile& one) { return one.path == path; });
    if (!is_known) throw ConfigError(begin + path + " is now among their files; put back what was there");
  }
  return weights;
}

}  // namespace dtk
