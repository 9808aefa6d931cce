#include "toolkit/io/json.h"

#include <cmath>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

/// Parser callback; keeps the keys seen in every object that is still open.
class StrictnessCheck {
 public:
  StrictnessCheck(const std::string& subject, int max_depth) : subject_(subject), max_depth_(max_depth) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        check_depth(depth);
        open_objects_.emplace_back();
        break;
      case Json::parse_event_t::array_start:
        check_depth(depth);
        break;
      case Json::parse_event_t::object_end:
        open_objects_.pop_back();
        break;
      case Json::parse_event_t::key:
        check_key(parsed.get_ref<const std::string&>());
        break;
      default:
        break;
    }
    return true;
  }

 private:
  void check_depth(int depth) const {
    if (depth < max_depth_) return;
    throw FileError(subject_ + " nests deeper than " + std::to_string(max_depth_) + " levels");
  }

  void check_key(const std::string& key) {
    if (open_objects_.back().insert(key).second) return;
    throw FileError(subject_ + " has the key " + in_quotes(key) + " twice");
  }

  const std::string& subject_;
  const int max_depth_;
  std::vector<std::set<std::string>> open_objects_;
};

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& subject, int max_depth) {
  const auto fail_at = [&subject](size_t byte) {
    return FileError(subject + " is not JSON (at byte " + std::to_string(byte) + ")");
  };
  // The parser takes a zero byte for the end of the text and would not look at the rest.
  if (const size_t zero = text.find('\0'); zero != text.npos) throw fail_at(zero + 1);
  StrictnessCheck check(subject, max_depth);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(check));
  } catch (const Json::parse_error& error) {
    throw fail_at(error.byte);
  } catch (const Json::out_of_range&) {
    throw FileError(subject + " holds a number that is too large");
  }
}

std::optional<int64_t> whole_number(const Json& json) {
  if (json.is_number_unsigned() && !std::in_range<int64_t>(json.get<uint64_t>())) return std::nullopt;
  if (json.is_number_integer()) return json.get<int64_t>();
  if (!json.is_number_float()) return std::nullopt;
  constexpr double limit = 9.2e18;  // within int64_t, as the literal is exact enough for
  const double number = json.get<double>();
  if (!(std::abs(number) < limit) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string in_quotes(std::string_view text) {
  constexpr size_t longest = 100;
  const std::string shown =
      text.size() <= longest ? std::string(text) : std::string(text.substr(0, longest)) + "...";
  return Json(shown).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dtk
