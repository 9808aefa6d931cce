// JSON from files that may be damaged or hostile.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dtk {

/// Parses `text`. Unlike nlohmann::json::parse it refuses a key given twice in one object (which would keep
/// one of the two without a word) and more than `max_depth` nested objects and arrays. Throws FileError
/// "<subject> is not JSON ..."; `subject` is what the user knows the text as.
nlohmann::json parse_strict_json(std::string_view text, const std::string& subject, int max_depth);

/// `text` in quotes for a message: escaped, and shortened when long.
std::string in_quotes(std::string_view text);

}  // namespace dtk
