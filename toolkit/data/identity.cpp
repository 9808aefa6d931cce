#include "toolkit/data/identity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/core/text.h"
#include "toolkit/data/data_source.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

void add_number(Sha256& hash, uint64_t number) {
  std::array<unsigned char, 8> bytes{};  // little endian on any machine
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
  hash.update(bytes.data(), bytes.size());
}

void add_text(Sha256& hash, std::string_view text) {
  add_number(hash, text.size());
  hash.update(text.data(), text.size());
}

std::string number_in(const DataClass& one) {
  return count_text(one.samples, "sample");
}

using ClassesByName = std::map<std::string, const DataClass*>;

ClassesByName by_name(const std::vector<DataClass>& classes) {
  ClassesByName found;
  for (const DataClass& one : classes) found.emplace(one.name, &one);
  return found;
}

/// The class of `others` that holds what `one` does and has a name that is not `known`; null: none.
const DataClass* renamed(const DataClass& one, const ClassesByName& known,
                         const std::vector<DataClass>& others) {
  const auto same = std::find_if(others.begin(), others.end(), [&](const DataClass& other) {
    return other.sha256 == one.sha256 && other.samples == one.samples && known.count(other.name) == 0;
  });
  return same == others.end() ? nullptr : &*same;
}

void compare_classes(const std::vector<DataClass>& then, const std::vector<DataClass>& now,
                     std::vector<std::string>& found) {
  const ClassesByName before = by_name(then), after = by_name(now);
  std::vector<std::string> moved, changed;
  for (const DataClass& old : then) {
    const std::string its_name = "class \"" + old.name + "\"";
    const auto same = after.find(old.name);
    if (same == after.end()) {
      const DataClass* const other = renamed(old, before, now);
      found.push_back(its_name + (other != nullptr ? " is called \"" + other->name + "\""
                                                   : " is gone, which had " + number_in(old)));
      continue;
    }
    const DataClass& its = *same->second;
    if (its.label != old.label)
      moved.push_back(fmt::format("{} had the label {} and has {}", its_name, old.label, its.label));
    if (its.samples != old.samples) {
      changed.push_back(fmt::format("{} has {}, and had {}", its_name, number_in(its), old.samples));
    } else if (its.sha256 != old.sha256) {
      changed.push_back(fmt::format("{} has {} as before, but not the same", its_name, number_in(its)));
    }
  }
  for (const DataClass& one : now) {
    if (before.count(one.name) > 0 || renamed(one, after, then) != nullptr) continue;
    found.push_back(fmt::format("class \"{}\" is new, with {}", one.name, number_in(one)));
  }
  for (const auto& more : {moved, changed}) found.insert(found.end(), more.begin(), more.end());
}

void compare_files(const std::vector<DataFile>& then, const std::vector<DataFile>& now,
                   std::vector<std::string>& found) {
  if (then.size() != now.size()) {
    found.push_back(fmt::format("{} in the place of {}", count_text(std::ssize(now), "file"),
                                count_text(std::ssize(then), "file")));
    return;
  }
  for (size_t i = 0; i < then.size(); ++i) {
    if (now[i] == then[i]) continue;
    found.push_back(now[i].name == then[i].name
                        ? fmt::format("{} has {} bytes, and had {}", now[i].name, now[i].bytes, then[i].bytes)
                        : fmt::format("{} ({} bytes) is in the place of {} ({} bytes)", now[i].name,
                                      now[i].bytes, then[i].name, then[i].bytes));
  }
}

// Of what may be read back, not of what is written: a file of somebody else's.
constexpr int64_t kIdentityVersion = 1;

[[noreturn]] void refuse_identity(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{}: {}; it is not what a run writes about its data", path, what));
}

const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_identity(path, fmt::format("has no \"{}\"", key));
  return *found;
}

std::string text_at(const nlohmann::json& object, const char* key, const std::string& path) {
  const nlohmann::json& value = member(object, key, path);
  if (!value.is_string()) refuse_identity(path, fmt::format("\"{}\" is not a text", key));
  return value.get<std::string>();
}

int64_t count_at(const nlohmann::json& object, const char* key, const std::string& path) {
  const auto count = whole_number(member(object, key, path));
  if (!count || *count < 0) refuse_identity(path, fmt::format("\"{}\" is not a whole number from 0", key));
  return *count;
}

const nlohmann::json& objects_at(const nlohmann::json& object, const char* key, const std::string& path) {
  const nlohmann::json& list = member(object, key, path);
  const bool objects = list.is_array() &&
                       std::all_of(list.begin(), list.end(), [](const auto& one) { return one.is_object(); });
  if (!objects) refuse_identity(path, fmt::format("\"{}\" is not a list of objects", key));
  return list;
}

}  // namespace

DataFile data_file(const std::filesystem::path& path) {
  return {printable(shown(path.filename())), static_cast<int64_t>(open_data(path)->size())};
}

void ClassDigest::add(std::string_view name, int64_t position, int64_t bytes) {
  add_text(hash_, name);
  if (name.empty()) add_number(hash_, static_cast<uint64_t>(position));
  add_number(hash_, static_cast<uint64_t>(bytes));
  ++samples_;
}

DataClass ClassDigest::finish(int64_t label, std::string name) {
  return {label, std::move(name), samples_, hash_.hex_digest()};
}

std::vector<DataClass> numbered_classes(const std::vector<int64_t>& labels) {
  std::map<int64_t, ClassDigest> digests;  // not of every number: labels may be far apart
  for (size_t i = 0; i < labels.size(); ++i) digests[labels[i]].add("", static_cast<int64_t>(i), 0);
  std::vector<DataClass> classes;
  for (auto& [label, digest] : digests) classes.push_back(digest.finish(label, std::to_string(label)));
  return classes;
}

std::string contents_sha256(const DataSource& source) {
  Sha256 hash;
  for (int64_t i = 0; i < source.size(); ++i) {
    const Batch batch = source.allocate_for({i}, /*pinned=*/false);
    source.read(i, /*epoch=*/0, batch, /*row=*/0);
    for (const at::Tensor& tensor : batch.tensors) {
      if (tensor.defined()) hash.update(tensor.const_data_ptr(), tensor.nbytes());
    }
  }
  return hash.hex_digest();
}

std::string fingerprint(const DataIdentity& identity) {
  Sha256 hash;
  add_number(hash, identity.files.size());
  for (const DataFile& file : identity.files) {
    add_text(hash, file.name);
    add_number(hash, static_cast<uint64_t>(file.bytes));
  }
  add_number(hash, identity.classes.size());
  for (const DataClass& one : identity.classes) {
    add_number(hash, static_cast<uint64_t>(one.label));
    add_text(hash, one.name);
    add_number(hash, static_cast<uint64_t>(one.samples));
    add_text(hash, one.sha256);
  }
  add_text(hash, identity.contents);
  return hash.hex_digest();
}

std::string identity_text(const DataIdentity& identity) {
  nlohmann::ordered_json json;
  json["version"] = kIdentityVersion;
  json["fingerprint"] = fingerprint(identity);
  if (identity.held_out_below)
    json["held_out_below"] = std::to_string(*identity.held_out_below);  // more than a double holds
  if (!identity.contents.empty()) json["contents"] = identity.contents;
  json["files"] = nlohmann::ordered_json::array();
  for (const DataFile& file : identity.files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  json["classes"] = nlohmann::ordered_json::array();
  for (const DataClass& one : identity.classes) {
    json["classes"].push_back(
        {{"label", one.label}, {"name", one.name}, {"samples", one.samples}, {"sha256", one.sha256}});
  }
  return json_text(json, NotUtf8::replaced);
}

DataIdentity parse_identity(std::string_view text, const std::string& path) {
  constexpr int max_depth = 4;
  const nlohmann::json json = parse_strict_json(text, path, max_depth);
  if (!json.is_object()) refuse_identity(path, "it is not a JSON object");
  const int64_t version = count_at(json, "version", path);
  if (version != kIdentityVersion) {
    throw FileError(
        fmt::format("{}: version {}; this program reads version {}; use the program that wrote it", path,
                    version, kIdentityVersion));
  }
  DataIdentity identity;
  for (const auto& file : objects_at(json, "files", path))
    identity.files.push_back({text_at(file, "name", path), count_at(file, "bytes", path)});
  for (const auto& one : objects_at(json, "classes", path)) {
    identity.classes.push_back({count_at(one, "label", path), text_at(one, "name", path),
                                count_at(one, "samples", path), text_at(one, "sha256", path)});
  }
  if (json.contains("contents")) identity.contents = text_at(json, "contents", path);
  if (json.contains("held_out_below")) {
    const std::string digits = text_at(json, "held_out_below", path);
    uint64_t below = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), below);
    if (error != std::errc() || end != digits.data() + digits.size())
      refuse_identity(path, "\"held_out_below\" is not a whole number of 64 bits");
    identity.held_out_below = below;
  }
  if (text_at(json, "fingerprint", path) != fingerprint(identity))
    refuse_identity(path, "its fingerprint is not that of the rest");
  return identity;
}

std::vector<std::string> differences(const DataIdentity& then, const DataIdentity& now) {
  std::vector<std::string> found;
  compare_files(then.files, now.files, found);
  compare_classes(then.classes, now.classes, found);
  const bool both = !then.contents.empty() && !now.contents.empty();
  if (both && found.empty() && then.contents != now.contents)
    found.emplace_back("names and sizes are as they were, and the contents of a sample have changed");
  return found;
}

std::vector<std::string> names_in(const DataIdentity& identity) {
  std::vector<std::string> names;
  bool numbered = true;
  for (const DataClass& one : identity.classes) {
    if (one.label != static_cast<int64_t>(names.size())) return {};
    numbered = numbered && one.name == std::to_string(one.label);
    names.push_back(one.name);
  }
  return numbered ? std::vector<std::string>() : names;
}

uint64_t held_out_hash(uint64_t seed, std::string_view name, int64_t position) {
  if (name.empty()) return draw64(seed, static_cast<uint64_t>(position));
  return stream_seed(static_cast<int64_t>(seed), name);
}

}  // namespace dtk
