#include "toolkit/checkpoint/manifest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "toolkit/core/format.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

constexpr uint64_t manifest_version = 1;
constexpr int manifest_depth = 3;  // manifest, files, file

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw DamagedManifest(path + " is not a checkpoint manifest: " + what);
}

Json parse_object(std::string_view text, const std::string& path) try {
  return parse_strict_json(text, path, manifest_depth);
} catch (const FileError& error) {
  throw DamagedManifest(error.what());
}

uint64_t manifest_number(const Json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) {
    refuse(path, in_quotes(key) + " is not a whole number from 0");
  }
  return found->get<uint64_t>();
}

std::string string_value(const Json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) refuse(path, in_quotes(key) + " is not a string");
  return found->get<std::string>();
}

void check_version(const Json& json, const std::string& path) {
  const uint64_t version = manifest_number(json, "version", path);
  if (version > manifest_version) {
    throw FileError(fmt::format("{} has version {}; this program reads version {}. Use a newer release of it",
                                path, version, manifest_version));
  }
  if (version != manifest_version)
    refuse(path, fmt::format("version {} was never written; the oldest is 1", version));
}

ManifestFile read_file_entry(const Json& json, const std::string& path) {
  if (!json.is_object()) refuse(path, "an entry of \"files\" is not an object");
  ManifestFile file{string_value(json, "name", path), manifest_number(json, "bytes", path),
                    string_value(json, "sha256", path)};
  if (!is_plain_file_name(file.name)) refuse(path, in_quotes(file.name) + " is not a plain file name");
  const bool is_digest =
      file.sha256.size() == 64 && file.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_digest) refuse(path, "the sha256 of " + in_quotes(file.name) + " is not 64 hexadecimal digits");
  return file;
}

}  // namespace

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != manifest_name &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

std::string manifest_text(const CheckpointManifest& manifest) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson files = OrderedJson::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  const OrderedJson json = {{"version", manifest_version}, {"step", manifest.step}, {"files", files}};
  return json_text(json);
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& path) {
  const Json json = parse_object(text, path);
  if (!json.is_object()) refuse(path, "it is not a JSON object");
  check_version(json, path);

  CheckpointManifest manifest;
  const uint64_t step = manifest_number(json, "step", path);
  if (!std::in_range<int64_t>(step)) refuse(path, fmt::format("step {} is too large", step));
  manifest.step = static_cast<int64_t>(step);
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) refuse(path, "\"files\" is not an array");
  std::set<std::string> names;
  for (const Json& entry : *files) {
    manifest.files.push_back(read_file_entry(entry, path));
    const std::string& name = manifest.files.back().name;
    if (!names.insert(name).second) refuse(path, in_quotes(name) + " is listed twice");
  }
  return manifest;
}

bool is_complete_checkpoint(FileSystem& files, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / manifest_name;
  if (!files.exists(path)) return false;
  CheckpointManifest manifest;
  try {
    manifest = parse_manifest(files.read(path), path.string());
  } catch (const DamagedManifest&) {
    return false;
  }
  return std::all_of(manifest.files.begin(), manifest.files.end(), [&](const ManifestFile& file) {
    return files.exists(folder / file.name) && files.size(folder / file.name) == file.bytes;
  });
}

}  // namespace dtk
