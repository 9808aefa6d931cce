#include "toolkit/io/json.h"

#include <cmath>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

/// Goes through a text and keeps the keys of every object that is still open. It builds nothing: nlohmann's
/// parser with a callback looks through all of an object's members whenever one of them ends.
class StrictnessCheck final : public nlohmann::json_sax<Json> {
 public:
  StrictnessCheck(const std::string& subject, int max_depth) : subject_(subject), max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (open_.back().insert(key).second) return true;
    throw FileError(fmt::format("{} has the key {} twice", subject_, in_quotes(key)));
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr)
      throw FileError(subject_ + " holds a number that is too large");
    throw FileError(fmt::format("{} is not JSON (at byte {})", subject_, byte));
  }

 private:
  bool open() {
    if (std::ssize(open_) == max_depth_)
      throw FileError(fmt::format("{} nests deeper than {} levels", subject_, max_depth_));
    open_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& subject_;
  const int max_depth_;
  std::vector<std::set<std::string>> open_;  // an array has none
};

nlohmann::detail::error_handler_t handler_of(NotUtf8 bytes) {
  return bytes == NotUtf8::replaced ? Json::error_handler_t::replace : Json::error_handler_t::strict;
}

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& subject, int max_depth) {
  // The parser takes a zero byte for the end of the text and would not look at the rest.
  if (const size_t zero = text.find('\0'); zero != text.npos)
    throw FileError(fmt::format("{} is not JSON (at byte {})", subject, zero + 1));
  StrictnessCheck check(subject, max_depth);
  Json::sax_parse(text.begin(), text.end(), &check);
  return parse_json(text);
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
  return json_line(Json(shown));
}

Json parse_json(std::string_view text) {
  return Json::parse(text.begin(), text.end());
}

std::string json_text(const nlohmann::ordered_json& json, NotUtf8 bytes) {
  return json.dump(1, ' ', false, handler_of(bytes)) + "\n";
}

std::string json_line(const Json& json, NotUtf8 bytes) {
  return json.dump(-1, ' ', false, handler_of(bytes));
}

std::string json_line(const nlohmann::ordered_json& json, NotUtf8 bytes) {
  return json.dump(-1, ' ', false, handler_of(bytes));
}

}  // namespace dtk
