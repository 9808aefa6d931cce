#include "toolkit/families/llava/lengths.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/io/json.h"
#include "toolkit/io/sha256.h"

namespace dtk::llava {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLengthsVersion = 1;
constexpr uint64_t kMaxLengthsBytes = uint64_t{4} << 30;
constexpr int kLengthsDepth = 4;
constexpr size_t kMaxLists = 32;

constexpr std::array<std::pair<const char*, int64_t SampleSize::*>, 4> kKeptFigures{
    {{"tokens", &SampleSize::tokens},
     {"pictures", &SampleSize::pictures},
     {"features", &SampleSize::features},
     {"labels", &SampleSize::labels}}};

[[noreturn]] void refuse_lengths(const std::filesystem::path& file, const std::string& what) {
  throw LengthsError(
      fmt::format("{}: {}; llava.data.lengths names a file that a start writes: remove it, or name another",
                  shown(file), what));
}

std::string hash_of(FileSystem& files, const std::filesystem::path& file) {
  if (!files.exists(file) || files.is_folder(file)) return "";
  return sha256_of_file(files, file, files.size(file));
}

nlohmann::json lists_in(FileSystem& files, const std::filesystem::path& file) {
  if (!files.exists(file)) return nlohmann::json::array();
  nlohmann::json json;
  try {
    json = parse_strict_json(files.read(file, kMaxLengthsBytes), shown(file), kLengthsDepth);
  } catch (const FileError& error) {
    refuse_lengths(file, first_line(error.what()));
  } catch (const DataError& error) {
    throw LengthsError(error.what());
  }
  const bool is_one =
      json.is_object() && json.contains("version") && json.contains("lists") && json.at("lists").is_array();
  if (!is_one) refuse_lengths(file, "no file of lengths");
  if (whole_number(json.at("version")) != kLengthsVersion) refuse_lengths(file, "of another version");
  for (const nlohmann::json& one : json.at("lists")) {
    if (!one.is_object()) refuse_lengths(file, "a list in it is no object");
  }
  return json.at("lists");
}

bool has(const nlohmann::json& entry, const char* name, const std::string& text, bool or_unknown) {
  const auto found = entry.find(name);
  if (found == entry.end() || !found->is_string()) return false;
  return *found == text || (or_unknown && text.empty());
}

bool is_of(const nlohmann::json& entry, const LengthsKey& key) {
  return has(entry, "list", key.list, false) && has(entry, "follows_from", key.follows_from, false) &&
         has(entry, "list_sha256", key.list_sha256, true) &&
         has(entry, "tokenizer_sha256", key.tokenizer_sha256, true);
}

ListLengths lengths_in(const nlohmann::json& entry, const std::filesystem::path& file) {
  constexpr int64_t kMaxFigure = int64_t{1} << 32;
  ListLengths lengths;
  const auto figure = [&](const nlohmann::json& json) {
    const auto number = whole_number(json);
    if (!number || *number < 0 || *number > kMaxFigure) refuse_lengths(file, "a figure in it is no count");
    return *number;
  };
  for (const auto& [name, member] : kKeptFigures) {
    const auto found = entry.find(name);
    if (found == entry.end() || !found->is_array() || found->empty())
      refuse_lengths(file, in_quotes(name) + " is no list");
    if (lengths.sizes.empty()) lengths.sizes.resize(found->size());
    if (found->size() != lengths.sizes.size()) refuse_lengths(file, "its lists are not equally long");
    for (size_t i = 0; i < found->size(); ++i) lengths.sizes[i].*member = figure((*found)[i]);
  }
  for (const SampleSize& one : lengths.sizes) {
    const bool can_be = one.labels > 0 && one.labels < one.tokens && one.features < one.tokens &&
                        (one.features > 0) == (one.pictures > 0);
    if (!can_be) refuse_lengths(file, "a sample in it has lengths that none can have");
  }
  if (!entry.contains("cut")) refuse_lengths(file, "\"cut\" is missing");
  lengths.cut = figure(entry.at("cut"));
  return lengths;
}

}  // namespace

LengthsKey lengths_key(FileSystem& files, const RunConfig& config, const std::filesystem::path& list) {
  const DialogueOptions& data = options_of(config).data;
  const DialogueTemplate& form = data.form;
  Json from = {{"style", policies::text_of(data.style)},
               {"system", data.system},
               {"image_first", data.image_first},
               {"max_length", data.max_length},
               {"image_tokens", options_of(config).model.image_tokens()}};
  DialogueTemplate::fields(
      form, [&](const std::string& name, const auto& value, const auto&...) { from[name] = value; });
  return {list.filename().string(), hash_of(files, list), hash_of(files, data.tokenizer), json_line(from)};
}

std::optional<ListLengths> read_lengths(FileSystem& files, const std::filesystem::path& file,
                                        const LengthsKey& key) {
  for (const nlohmann::json& entry : lists_in(files, file)) {
    if (is_of(entry, key)) return lengths_in(entry, file);
  }
  return std::nullopt;
}

void write_lengths(FileSystem& files, const std::filesystem::path& file, const LengthsKey& key,
                   const ListLengths& lengths) {
  Json now = {{"list", key.list},
              {"list_sha256", key.list_sha256},
              {"tokenizer_sha256", key.tokenizer_sha256},
              {"follows_from", key.follows_from},
              {"cut", lengths.cut}};
  for (const auto& [name, member] : kKeptFigures) {
    Json values = Json::array();
    for (const SampleSize& one : lengths.sizes) values.push_back(one.*member);
    now[name] = std::move(values);
  }
  Json lists = Json::array({std::move(now)});
  for (const nlohmann::json& other : lists_in(files, file)) {
    if (lists.size() < kMaxLists && !is_of(other, key)) lists.push_back(Json(other));
  }
  const Json json = {{"version", kLengthsVersion}, {"lists", std::move(lists)}};
  write_file_atomically(files, file, json_line(json) + "\n");
}

}  // namespace dtk::llava
