// JSON from files that may be damaged or hostile.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dtk {

/// Parses `text`. Unlike nlohmann::json::parse it refuses a key given twice in one object (which would keep
/// one of the two without a word) and more than `max_depth` nested objects and arrays. Throws FileError
/// "<subject> is not JSON ..."; `subject` is what the user knows the text as.
nlohmann::json parse_strict_json(std::string_view text, const std::string& subject, int max_depth);

/// The number, where it is a whole one that int64_t holds, as 3 and 3.0 are; nothing for any other value, for
/// which nlohmann's get() would be undefined or cut something off.
std::optional<int64_t> whole_number(const nlohmann::json& json);

// Reading and writing as functions: each file that calls nlohmann's own takes seconds longer to compile.

/// Of what this program wrote, or parse_strict_json() has taken. Throws nlohmann::json::parse_error.
nlohmann::json parse_json(std::string_view text);

/// What becomes of bytes that are no UTF-8, which names of files may hold.
enum class NotUtf8 { refused, replaced };

/// As files and programs have it: a line an item, and a line break at the end. This and json_line() throw
/// nlohmann's type_error for bytes that are refused.
std::string json_text(const nlohmann::ordered_json& json, NotUtf8 bytes = NotUtf8::refused);
/// In one line, without its end.
std::string json_line(const nlohmann::json& json, NotUtf8 bytes = NotUtf8::replaced);
std::string json_line(const nlohmann::ordered_json& json, NotUtf8 bytes = NotUtf8::replaced);

/// `text` in quotes for a message: escaped, and shortened when long.
std::string in_quotes(std::string_view text);

}  // namespace dtk
