// A TOML document as a flat list of keys: the only part of the configuration code that knows toml++.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace dtk {

/// A value that no field can hold; `kind` says what it is: "an array", "a table", "a date or time".
struct OtherValue {
  const char* kind;
};
using ConfigValue = std::variant<OtherValue, bool, int64_t, double, std::string, std::vector<std::string>,
                                 std::vector<double>>;

/// Line and column in the document, from 1; columns count code points.
struct Position {
  int64_t line = 0, column = 0;
};

struct DocumentEntry {
  std::string key;  // full, dotted; parts that are not bare keys are quoted: data."batch size"
  ConfigValue value;
  bool is_table = false;
  Position key_at, value_at;
};

/// Thrown by parse_document.
struct SyntaxError {
  Position at;
  std::string description;
};

/// Every key of `text`, tables included, in the order of the document; a table precedes its keys. Tables
/// nested deeper than a configuration can be are not opened.
std::vector<DocumentEntry> parse_document(const std::string& text);

}  // namespace dtk
