#include "toolkit/config/document.h"

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <tuple>

#include "toolkit/config/toml_guard.h"
#include "toolkit/config/toml_text.h"

namespace dtk {
namespace {

constexpr int deepest_table = 3;  // policies.<name>.<key>

Position begin_of(const toml::source_region& region) {
  return {static_cast<int64_t>(region.begin.line), static_cast<int64_t>(region.begin.column)};
}

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

std::string key_part(std::string_view part) {
  const bool bare = !part.empty() && std::all_of(part.begin(), part.end(), is_bare);
  return bare ? std::string(part) : toml_text(std::string(part));
}

// Whole numbers and others.
std::optional<std::vector<double>> numbers_in(const toml::array& array) {
  std::vector<double> numbers;
  for (const toml::node& element : array) {
    const auto number = element.is_number() ? element.value<double>() : std::nullopt;
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

ConfigValue list_of(const toml::array& array) {
  if (!array.empty() && array.front().is_number()) {
    const auto numbers = numbers_in(array);
    return numbers ? ConfigValue(*numbers) : ConfigValue(OtherValue{"an array"});
  }
  std::vector<std::string> list;
  for (const toml::node& element : array) {
    if (!element.is_string()) return OtherValue{"an array"};
    list.push_back(element.as_string()->get());
  }
  return list;
}

ConfigValue value_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* array = node.as_array()) return list_of(*array);
  if (node.is_table()) return OtherValue{"a table"};
  return OtherValue{"a date or time"};
}

void append(const toml::table& table, const std::string& prefix, int depth,
            std::vector<DocumentEntry>& entries) {
  for (auto&& [key, node] : table) {
    DocumentEntry entry;
    entry.key = prefix + key_part(key.str());
    entry.value = value_of(node);
    entry.is_table = node.is_table();
    entry.key_at = begin_of(key.source());
    // toml++ puts an array of tables, and a table opened by its header, elsewhere than at its name.
    const bool has_own_place = !node.is_table() && !node.is_array_of_tables();
    entry.value_at = has_own_place ? begin_of(node.source()) : entry.key_at;
    entries.push_back(entry);
    if (const auto* inner = node.as_table(); inner && depth < deepest_table) {
      append(*inner, entry.key + ".", depth + 1, entries);
    }
  }
}

}  // namespace

std::vector<DocumentEntry> parse_document(const std::string& text) {
  guard_toml(text);
  std::vector<DocumentEntry> entries;
  try {
    append(toml::parse(std::string_view(text)), "", 1, entries);
  } catch (const toml::parse_error& error) {
    throw SyntaxError{begin_of(error.source()), std::string(error.description())};
  }
  std::stable_sort(entries.begin(), entries.end(), [](const DocumentEntry& a, const DocumentEntry& b) {
    return std::tie(a.key_at.line, a.key_at.column) < std::tie(b.key_at.line, b.key_at.column);
  });
  return entries;
}

}  // namespace dtk
