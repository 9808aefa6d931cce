#include "toolkit/families/diffusion_planner/normalization.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/io/json.h"

namespace dtk::diffusion_planner {
namespace {

using Json = nlohmann::json;
using Scales = std::map<std::string, FeatureScale>;

constexpr const char* wanted_scales =
    "; wanted: a JSON object such as {\"lanes\": {\"mean\": [10, 0, ...], \"std\": [20, 20, ...]}, ...}";

/// The keys of the scale of trajectories, which the original has for both kinds of actors.
constexpr const char* actors[] = {"ego", "neighbor"};

/// All scales that a file may have, with the published numbers.
Scales published(int64_t lane_features) {
  Scales scales = published_scales(lane_features);
  for (const char* actor : actors) scales[actor] = pose_scale();
  return scales;
}

/// Whose units noise.h and losses.h count on.
const std::set<std::string> fixed = {"ego", "neighbor", "ego_current_state", "neighbor_agents_past",
                                     "line_strings"};

std::vector<std::string> keys_of(const Scales& scales) {
  std::vector<std::string> keys;
  for (const auto& [key, scale] : scales) keys.push_back(key);
  return keys;
}

/// The keys that a file for this layout cannot do without.
std::vector<std::string> needed_keys(FrameLayout layout, const FrameSizes& sizes) {
  const Scales known = published_scales(sizes.lane_features);
  std::vector<std::string> needed;
  for (const NpzArray& array : frame_arrays(layout, sizes)) {
    if (known.count(array.key) > 0) needed.push_back(array.key);
  }
  return needed;
}

/// Whole numbers without a point, as in the original's files.
std::string number_text(float value) {
  const bool whole = std::trunc(value) == value && std::abs(value) < 1e6F;
  return whole ? std::to_string(static_cast<int64_t>(value)) : json_line(Json(value));
}

class Reader {
 public:
  Reader(std::string file, int64_t lane_features)
      : file_(std::move(file)), published_(published(lane_features)) {}

  Scales scales(const Json& json) const {
    if (!json.is_object()) fail("one JSON " + std::string(json.type_name()) + wanted_scales);
    Scales scales;
    for (const auto& [key, entry] : json.items()) {
      const auto known = published_.find(key);
      if (known == published_.end()) {
        fail(fmt::format("the key {} is unknown; allowed: {}; remove it, or correct its name", in_quotes(key),
                         listed(keys_of(published_), " and ")));
      }
      scales[key] = scale(key, entry, known->second);
    }
    return scales;
  }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(file_ + ": " + what); }

 private:
  FeatureScale scale(const std::string& key, const Json& entry, const FeatureScale& known) const {
    if (!entry.is_object())
      fail(fmt::format("{}: one JSON {}{}", in_quotes(key), entry.type_name(), wanted_scales));
    for (const auto& [name, list] : entry.items()) {
      if (name != "mean" && name != "std")
        fail(fmt::format("{}: the key {} is unknown; allowed: mean and std; remove it", in_quotes(key),
                         in_quotes(name)));
    }
    return {numbers(key, entry, "mean", known.mean), numbers(key, entry, "std", known.std)};
  }

  std::vector<float> numbers(const std::string& key, const Json& entry, const std::string& name,
                             const std::vector<float>& known) const {
    const std::string where = in_quotes(key) + ": " + name;
    const auto list = entry.find(name);
    if (list == entry.end())
      fail(fmt::format("{} is missing; allowed: {}; add it", where, counted(known.size())));
    if (!list->is_array()) {
      fail(fmt::format("{} is one JSON {}; allowed: a list of {}", where, list->type_name(),
                       counted(known.size())));
    }
    if (list->size() != known.size()) {
      fail(
          fmt::format("{} has {}; allowed: {}, one for each feature; take the file of this model, or choose "
                      "the preset that it is for",
                      where, counted(list->size()), counted(known.size())));
    }
    std::vector<float> values;
    for (const Json& value : *list) {
      values.push_back(number(fmt::format("{}[{}]", where, values.size()), value, name == "std"));
      const float wants = known[values.size() - 1];
      if (fixed.count(key) == 0 || values.back() == wants) continue;
      fail(fmt::format(
          "{}[{}] is {}; allowed: {}, the published one, in whose unit losses and sampler compute", where,
          values.size() - 1, json_line(value), number_text(wants)));
    }
    return values;
  }

  float number(const std::string& where, const Json& value, bool above_zero) const {
    constexpr const char* allowed = "; allowed: a number that is finite in float32";
    if (value.is_string())
      fail(fmt::format("{} is {}{}", where, in_quotes(value.get<std::string>()), allowed));
    if (!value.is_number()) fail(fmt::format("{} is one JSON {}{}", where, value.type_name(), allowed));
    const auto number = static_cast<float>(value.get<double>());
    if (!std::isfinite(number)) fail(fmt::format("{} is {}{}", where, json_line(value), allowed));
    if (above_zero && !(number > 0))
      fail(fmt::format("{} is {}; allowed: a number above 0", where, json_line(value)));
    return number;
  }

  static std::string counted(size_t numbers) { return count_text(static_cast<int64_t>(numbers), "number"); }

  const std::string file_;
  const Scales published_;
};

Json read_scales(FileSystem& files, const std::filesystem::path& path) try {
  constexpr int max_depth = 8;  // other things are to be told from a file with damage
  return parse_strict_json(files.read(path), path.string(), max_depth);
} catch (const FileError& error) {
  throw DataError(error.what() + std::string(wanted_scales));
}

std::string list_text(const std::vector<float>& values) {
  std::vector<std::string> texts;
  for (const float value : values) texts.push_back(number_text(value));
  return "[" + listed(texts, ", ") + "]";
}

std::string entry_text(const std::string& key, const FeatureScale& scale) {
  return fmt::format("  {}: {{\"mean\": {}, \"std\": {}}}", in_quotes(key), list_text(scale.mean),
                     list_text(scale.std));
}

}  // namespace

Scales read_normalization(FileSystem& files, const std::filesystem::path& path, FrameLayout layout,
                          const FrameSizes& sizes) {
  const Reader reader(path.string(), sizes.lane_features);
  if (!files.exists(path) || files.is_folder(path))
    reader.fail("no such file; name the normalization.json that was made with the weights");
  Scales found = reader.scales(read_scales(files, path));
  Scales scales;
  std::vector<std::string> missing;
  for (const std::string& key : needed_keys(layout, sizes)) {
    const auto entry = found.find(key);
    if (entry == found.end()) {
      missing.push_back(in_quotes(key));
    } else {
      scales.insert(found.extract(entry));
    }
  }
  for (const char* actor : actors) {
    if (found.count(actor) == 0) missing.push_back(in_quotes(actor));
  }
  if (missing.empty()) return scales;
  reader.fail("no scale of " + listed(missing, " and ") +
              "; add it, or take the file that was made with the weights");
}

std::string normalization_text(const Scales& scales) {
  std::string text;
  for (const char* actor : actors) text += (text.empty() ? "{\n" : ",\n") + entry_text(actor, pose_scale());
  for (const auto& [key, scale] : scales) text += ",\n" + entry_text(key, scale);
  return text + "\n}\n";
}

}  // namespace dtk::diffusion_planner
