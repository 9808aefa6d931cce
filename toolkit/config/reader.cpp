#include <algorithm>
#include <any>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "toolkit/config/config_io.h"
#include "toolkit/config/document.h"
#include "toolkit/config/keys.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/range.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/io/file_system.h"

namespace dtk {
namespace {

/// A key as the user wrote it, with the locations that messages start with.
struct Entry {
  std::string key;
  ConfigValue value;
  bool is_table;
  std::string key_place, value_place;  // "configs/base.toml:12:9" or "--set data.batch=0"
  Origin origin;
  bool resets = false;  // back to the default; `value` says nothing
};

[[noreturn]] void fail(const std::string& place, const std::string& message) {
  throw ConfigError(place + ": " + message);
}

// Whole numbers as such: which of them were written as floats is no longer known.
std::string written_list(const std::vector<double>& list) {
  constexpr double exact = 1e15;
  std::string text;
  for (const double number : list) {
    const bool whole = number == std::trunc(number) && std::abs(number) < exact;
    text +=
        (text.empty() ? "" : ", ") + (whole ? toml_text(static_cast<int64_t>(number)) : toml_text(number));
  }
  return "[" + text + "]";
}

std::string written_value(const ConfigValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return toml_text(*boolean);
  if (const auto* integer = std::get_if<int64_t>(&value)) return toml_text(*integer);
  if (const auto* number = std::get_if<double>(&value)) return toml_text(*number);
  if (const auto* string = std::get_if<std::string>(&value)) return toml_text(*string);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return toml_text(*list);
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return written_list(*list);
  return "";
}

std::string type_of(const ConfigValue& value) {
  if (std::holds_alternative<bool>(value)) return "a boolean";
  if (std::holds_alternative<int64_t>(value)) return "an integer";
  if (std::holds_alternative<double>(value)) return "a float";
  if (std::holds_alternative<std::string>(value)) return "a string";
  if (std::holds_alternative<std::vector<std::string>>(value)) return "an array";
  if (std::holds_alternative<std::vector<double>>(value)) return "an array";
  return std::get<OtherValue>(value).kind;
}

/// "data.batch = 16.0 is a float", "data.batch is an array".
std::string seen(const Entry& entry) {
  const std::string value = written_value(entry.value);
  return fmt::format("{}{} is {}", entry.key, value.empty() ? "" : " = " + value, type_of(entry.value));
}

// Reading one member from one entry: the type first, then what is allowed.

template <class T>
const T& value_as(const Entry& entry, const std::string& wanted_text) {
  const T* const value = std::get_if<T>(&entry.value);
  if (!value) fail(entry.value_place, seen(entry) + "; wanted: " + wanted_text);
  return *value;
}

[[noreturn]] void not_allowed(const Entry& entry, const std::string& what, const std::string& allowed) {
  fail(entry.value_place,
       fmt::format("{} = {} is {}; allowed: {}", entry.key, written_value(entry.value), what, allowed));
}

void check_range(const Entry& entry, double value, const std::string& allowed) {
  if (parse_interval(allowed).contains(value)) return;
  not_allowed(entry, "out of range", allowed.empty() ? "(-inf, inf)" : allowed);
}

void assign(bool& member, const Entry& entry, const std::string& allowed) {
  member = value_as<bool>(entry, wanted(member, allowed));
}

void assign(int64_t& member, const Entry& entry, const std::string& allowed) {
  const int64_t value = value_as<int64_t>(entry, wanted(member, allowed));
  check_range(entry, static_cast<double>(value), allowed);
  member = value;
}

void assign(double& member, const Entry& entry, const std::string& allowed) {
  const int64_t* const integer = std::get_if<int64_t>(&entry.value);
  const double value =
      integer ? static_cast<double>(*integer) : value_as<double>(entry, wanted(member, allowed));
  check_range(entry, value, allowed);
  member = value;
}

void assign(std::string& member, const Entry& entry, const std::string& allowed) {
  const std::string& value = value_as<std::string>(entry, wanted(member, allowed));
  if (!allowed.empty() && !is_purpose(allowed) && !is_choice(allowed, value))
    not_allowed(entry, "not a choice", allowed);
  member = value;
}

void assign(policies::Enabled& member, const Entry& entry, const std::string& allowed) {
  if (const auto* boolean = std::get_if<bool>(&entry.value)) {
    member = *boolean ? policies::Enabled::on : policies::Enabled::off;
    return;
  }
  const std::string& value = value_as<std::string>(entry, wanted(member, allowed));
  if (value != "default") not_allowed(entry, "not a choice", allowed);
  member = policies::Enabled::by_default;
}

void assign(std::vector<std::string>& member, const Entry& entry, const std::string& allowed) {
  member = value_as<std::vector<std::string>>(entry, wanted(member, allowed));
}

template <class Number>
void assign(std::array<Number, 4>& member, const Entry& entry, const std::string& allowed) {
  const auto& list = value_as<std::vector<double>>(entry, wanted(member, allowed));
  if (list.size() != member.size()) not_allowed(entry, "of another length", wanted(member, allowed));
  for (size_t i = 0; i < list.size(); ++i) {
    if (std::is_integral_v<Number> && std::floor(list[i]) != list[i])
      not_allowed(entry, "not whole", wanted(member, allowed));
    check_range(entry, list[i], allowed);
    member.at(i) = static_cast<Number>(list[i]);
  }
}

void assign(policies::SegmentKeeps& member, const Entry& entry, const std::string& allowed) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&entry.value)) {
    if (list->empty()) not_allowed(entry, "empty", allowed);
    member = *list;
    return;
  }
  const auto word =
      policies::parse_enum<policies::KeepWord>(value_as<std::string>(entry, wanted(member, allowed)));
  if (!word) not_allowed(entry, "not a choice", allowed);
  member = *word;
}

std::optional<int64_t> bytes_in(const Entry& entry, const std::string& wanted_text) {
  if (const auto* text = std::get_if<std::string>(&entry.value)) return parse_bytes(*text);
  const auto* const number = std::get_if<double>(&entry.value);
  if (number == nullptr) return value_as<int64_t>(entry, wanted_text);
  if (std::floor(*number) != *number || std::abs(*number) >= 0x1p63)
    return std::nullopt;  // as 24e9 is written
  return static_cast<int64_t>(*number);
}

void assign(policies::ByteCount& member, const Entry& entry, const std::string& allowed) {
  const std::optional<int64_t> bytes = bytes_in(entry, wanted(member, allowed));
  if (!bytes) not_allowed(entry, "not a size", wanted(member, allowed));
  check_range(entry, static_cast<double>(*bytes), allowed);
  member.bytes = *bytes;
}

void assign(ByteSize& member, const Entry& entry, const std::string& allowed) {
  const std::optional<int64_t> bytes = bytes_in(entry, wanted(member, allowed));
  const auto* const text = std::get_if<std::string>(&entry.value);
  const std::optional<double> percent = !bytes && text ? parse_percent(*text) : std::nullopt;
  if (!bytes && !percent) not_allowed(entry, "not a size", wanted(member, allowed));
  if (bytes) check_range(entry, static_cast<double>(*bytes), allowed);
  member = {bytes.value_or(0), percent.value_or(0)};
}

template <class T>
void assign(std::optional<T>& member, const Entry& entry, const std::string& allowed) {
  T value{};
  assign(value, entry, allowed);
  member = value;
}

// Unknown names.

std::string in_brackets(const std::string& table) {
  return "[" + table + "]";
}

std::string table_list() {
  std::vector<std::string> tables;
  for (const std::string& table : all_tables()) tables.push_back(in_brackets(table));
  return listed(tables, ", ");
}

/// An unknown name of which nothing better is known than all tables.
struct NoNearName : ConfigError {
  explicit NoNearName(const std::string& seen)
      : ConfigError(seen + "; known tables: " + table_list()), without_list(seen) {}
  const std::string without_list;
};

/// [planner] and its sub-tables, of old configurations and checkpoints, by their name of today; "" for
/// others.
std::string renamed(const std::string& key) {
  constexpr std::string_view old = "planner";
  if (key != old && !key.starts_with("planner.")) return "";
  return "diffusion_planner" + key.substr(old.size());
}

[[noreturn]] void unknown_table(const Entry& entry) {
  const std::string now = renamed(entry.key);
  const std::vector<std::string> near = near_keys(entry.key, all_tables());
  const std::string unknown = "unknown table " + in_brackets(entry.key);
  if (!now.empty()) fail(entry.key_place, fmt::format("{}; it is called {} now", unknown, in_brackets(now)));
  if (!near.empty())
    fail(entry.key_place, fmt::format("{}; did you mean {}?", unknown, in_brackets(near.front())));
  throw NoNearName(entry.key_place + ": " + unknown);
}

[[noreturn]] void unknown_key(const Entry& entry) {
  const std::string table = parent_of(entry.key);
  std::vector<std::string> keys, names_in_table;
  for (const KeyInfo& info : all_keys()) {
    keys.push_back(info.key);
    if (info.table == table) names_in_table.push_back(info.key.substr(table.size() + 1));
  }
  const std::vector<std::string> near = near_keys(entry.key, keys);
  const std::string unknown = "unknown key " + entry.key;
  if (const std::string now = renamed(entry.key); !now.empty())
    fail(entry.key_place, fmt::format("{}; it is called {} now", unknown, now));
  if (!near.empty())
    fail(entry.key_place, fmt::format("{}; did you mean {}?", unknown, listed(near, " or ")));
  if (!names_in_table.empty())
    fail(entry.key_place,
         fmt::format("{}; known keys of {}: {}", unknown, in_brackets(table), listed(names_in_table, ", ")));
  throw NoNearName(entry.key_place + ": " + unknown);
}

[[noreturn]] void unknown(const Entry& entry) {
  if (entry.is_table && !has_keys(parent_of(entry.key))) unknown_table(entry);
  unknown_key(entry);
}

// From text to entries.

std::string place_in(const std::string& file_name, Position at) {
  return fmt::format("{}:{}:{}", file_name, at.line, at.column);
}

std::vector<Entry> read_file(const std::string& text, const std::string& file_name) {
  std::vector<Entry> entries;
  try {
    for (DocumentEntry& found : parse_document(text)) {
      entries.push_back({std::move(found.key),
                         std::move(found.value),
                         found.is_table,
                         place_in(file_name, found.key_at),
                         place_in(file_name, found.value_at),
                         {Origin::Source::file, fmt::format("{}:{}", file_name, found.key_at.line)}});
    }
  } catch (const SyntaxError& error) {
    fail(place_in(file_name, error.at), "not valid TOML: " + error.description);
  }
  return entries;
}

// The name is printed into the run's saved configuration, which must stay readable.
void check_file_name(const std::string& file_name) {
  try {
    parse_document(toml_text(file_name) + " = 0");
  } catch (const SyntaxError&) {
    fail(file_name, "the name of this file is not UTF-8; rename it");
  }
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// A string or a choice may be given without quotes, which a shell would take away anyway; what begins like
// another TOML value and is not one is a mistake.
bool may_be_bare_word(const KeyInfo* key, const std::string& value) {
  return key && key->is_text && std::string("\"'[{").find(value.front()) == std::string::npos;
}

/// One override, "data.batch=16".
class Override {
 public:
  explicit Override(const std::string& text) : place_("--set " + escaped_control(text)) {
    const size_t equals = text.find('=');
    if (equals != std::string::npos) key_ = trimmed(text.substr(0, equals));
    if (key_.empty()) fail(place_, "not of the form key=value; write for example --set data.batch=16");
    value_ = trimmed(text.substr(equals + 1));
  }

  std::vector<Entry> entries() const {
    const KeyInfo* const key = find_key(key_);
    if (!key && !is_table(key_)) unknown(entry(key_, OtherValue{"a value"}, false));
    const std::string wanted_text = key ? key->wanted : "a table";
    if (value_.empty()) fail(place_, key_ + " has no value; wanted: " + wanted_text);
    std::vector<Entry> found;
    if (key && value_ == "default") return {reset_entry()};
    const bool bare = may_be_bare_word(key, value_);
    if (!(bare && key->is_any_text) && read(value_, found)) return found;
    if (bare && read(toml_text(value_), found)) return found;
    fail(place_, escaped_control(value_) + " is not a TOML value; wanted: " + wanted_text);
  }

  const std::string& place() const { return place_; }

 private:
  // A line break in a message would hide what follows it.
  static std::string escaped_control(const std::string& text) {
    const bool clean = std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; });
    return clean ? text : escaped(text);
  }

  Entry entry(const std::string& key, const ConfigValue& value, bool table) const {
    return {key, value, table, place_, place_, {Origin::Source::set}};
  }

  Entry reset_entry() const {
    Entry found = entry(key_, OtherValue{"the default"}, false);
    found.resets = true;
    return found;
  }

  /// False if `value` is not TOML. A line break would let one override set several keys.
  bool read(const std::string& value, std::vector<Entry>& entries) const {
    if (value.find_first_of("\r\n") != std::string::npos) return false;
    try {
      for (const DocumentEntry& found : parse_document(key_ + " = " + value)) {
        entries.push_back(entry(found.key, found.value, found.is_table));
      }
      return true;
    } catch (const SyntaxError&) {
      return false;
    }
  }

  std::string place_, key_, value_;
};

/// Builds a configuration from entries; later ones replace earlier ones.
class Reader {
 public:
  explicit Reader(const std::string& file_name) : file_name_(file_name) {
    for (const KeyInfo& info : all_keys()) loaded_.origins[info.key] = {};
  }

  /// What is wrong with entries is told together, by checked().
  void apply(const Entry& entry) try {
    if (is_table(entry.key)) {
      if (!entry.is_table) fail(entry.value_place, seen(entry) + "; wanted: a table, " + table_hint(entry));
      return;
    }
    if (!find_key(entry.key)) unknown(entry);
    if (entry.resets) return reset(entry);
    visit_keys(loaded_.config, [&](const std::string& table, const std::string& name, auto& member,
                                   const std::string& allowed, const auto&...) {
      if (entry.key == table + "." + name) assign(member, entry, allowed);
    });
    loaded_.origins[entry.key] = entry.origin;
    loaded_.locations[entry.key] = entry.value_place;
  } catch (const ConfigError& error) {
    if (entry.is_table) unknown_tables_.insert(entry.key);
    // Of a table that is not known, no key is.
    if (unknown_tables_.count(parent_of(entry.key)) == 0) add_problem(error);
  }

  /// Of a key that was applied: it counts as written only if it was.
  void came_from(const std::string& key, const Origin& origin) {
    if (find_key(key) == nullptr) return;
    loaded_.origins[key] = origin;
    const bool written = origin.source == Origin::Source::file || origin.source == Origin::Source::set;
    if (!written) loaded_.locations.erase(key);
  }

  // All tables are listed once.
  void add_problem(const ConfigError& error) {
    const auto* const lists = dynamic_cast<const NoNearName*>(&error);
    const bool again = lists != nullptr && std::exchange(lists_tables_, true);
    problems_.push_back(again ? lists->without_list : error.what());
  }
  void note(const std::string& text) { loaded_.notes.push_back(text); }

  /// `written_at`: where a user wrote the keys, in place of where they stand here; keys that others have
  /// settled are no user's. Null: here.
  LoadedConfig checked(const std::map<std::string, std::string>* written_at = nullptr) {
    constexpr size_t most = 20;
    if (problems_.size() > most) {
      const size_t more = problems_.size() - most;
      problems_.resize(most);
      problems_.push_back(fmt::format("and {} more like these", more));
    }
    if (!problems_.empty()) throw ConfigError(listed(problems_, "\n", "\n"));
    family_named(loaded_.config.train.model).settle_defaults(loaded_);
    if (written_at != nullptr) loaded_.locations = *written_at;
    check_rules(loaded_, file_name_);
    return loaded_;
  }

 private:
  /// "written [train]", or for a table of tables "such as [policies.ema]".
  static std::string table_hint(const Entry& entry) {
    if (has_keys(entry.key)) return "written " + in_brackets(entry.key);
    for (const std::string& table : all_tables()) {
      if (parent_of(table) == entry.key) return "such as " + in_brackets(table);
    }
    return "";
  }

  /// From here on the key counts as not written.
  void reset(const Entry& entry) {
    std::any value;
    const auto is_it = [&](const std::string& table, const std::string& name) {
      return entry.key == table + "." + name;
    };
    const RunConfig defaults;
    visit_keys(defaults,
               [&](const std::string& table, const std::string& name, const auto& member, const auto&...) {
                 if (is_it(table, name)) value = member;
               });
    visit_keys(loaded_.config,
               [&](const std::string& table, const std::string& name, auto& member, const auto&...) {
                 if (is_it(table, name)) member = std::any_cast<std::decay_t<decltype(member)>>(value);
               });
    loaded_.origins[entry.key] = entry.origin;
    loaded_.locations.erase(entry.key);
  }

  std::string file_name_;
  LoadedConfig loaded_;
  std::vector<std::string> problems_;
  bool lists_tables_ = false;  // one of them does
  std::set<std::string> unknown_tables_;
};

void apply_overrides(Reader& reader, const std::vector<std::string>& overrides) {
  std::map<std::string, std::string> given;  // key to the override that set it
  for (const std::string& text : overrides) try {
      const Override one(text);
      for (const Entry& entry : one.entries()) {
        reader.apply(entry);
        if (entry.is_table) continue;
        const auto [earlier, is_new] = given.emplace(entry.key, one.place());
        if (is_new) continue;
        reader.note(one.place() + " takes the place of " + earlier->second);
        earlier->second = one.place();
      }
    } catch (const ConfigError& error) {
      reader.add_problem(error);
    }
}

}  // namespace

std::set<std::string> keys_of(const std::vector<std::string>& overrides) {
  std::set<std::string> keys;
  for (const std::string& text : overrides)
    for (const Entry& entry : Override(text).entries()) keys.insert(entry.key);
  return keys;
}

LoadedConfig parse_config(const std::string& text, const std::string& file_name,
                          const std::vector<std::string>& overrides,
                          const std::map<std::string, Origin>& origins) {
  check_file_name(file_name);
  Reader reader(file_name);
  for (const Entry& entry : read_file(text, file_name)) reader.apply(entry);
  for (const auto& [key, origin] : origins) reader.came_from(key, origin);
  apply_overrides(reader, overrides);
  return reader.checked();
}

LoadedConfig reparse_config(const std::string& text, const std::string& name,
                            const std::map<std::string, std::string>& locations) {
  Reader reader(name);
  for (const Entry& entry : read_file(text, name)) reader.apply(entry);
  return reader.checked(&locations);
}

std::string read_config(FileSystem& files, const std::filesystem::path& file) {
  if (!files.exists(file))
    fail(file.string(), "this file does not exist; give an existing file with --config");
  try {
    constexpr uint64_t most = uint64_t{1} << 20;  // hundreds of times what all keys take
    return files.read_given(file, most);
  } catch (const FileError& error) {
    throw ConfigError(error.what());
  }
}

LoadedConfig load_config(FileSystem& files, const std::filesystem::path& file,
                         const std::vector<std::string>& overrides) {
  return parse_config(read_config(files, file), file.string(), overrides);
}

}  // namespace dtk
