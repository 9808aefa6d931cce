#include "toolkit/config/key_page.h"

#include "toolkit/config/config_io.h"
#include "toolkit/config/families.h"
#include "toolkit/config/keys.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/suggestions.h"
#include "toolkit/core/text.h"
#include "toolkit/core/text_table.h"

namespace dtk {
namespace {

constexpr size_t wanted_column = 38, meaning_column = 6;

// A list that is too long for a line goes on below its first value.
std::string in_lines(const std::string& name, std::string list) {
  const std::string start = "  " + name + " = ";
  std::string lines;
  for (size_t room = 78 - start.size(); list.size() > room;) {
    const size_t comma = list.rfind(", ", room);
    if (comma == std::string::npos) break;
    lines += list.substr(0, comma + 1) + "\n" + std::string(start.size() + 1, ' ');
    list.erase(0, comma + 2);
  }
  return start + lines + list;
}

std::string key_text(const std::string& name, const std::string& by_default, const std::string& what) {
  const std::string start = in_lines(name, by_default);
  if (start.size() + 2 <= wanted_column) return entry(start, wanted_column, what);
  return start + "\n" + entry("", wanted_column, what);
}

[[noreturn]] void none_begins_with(const std::string& prefix) {
  std::vector<std::string> names = all_tables();
  for (const KeyInfo& info : all_keys()) names.push_back(info.key);
  const std::vector<std::string> near = near_keys(prefix, names);
  throw ConfigError(fmt::format(
      "--keys {}: no key begins so{}", prefix,
      near.empty() ? "; tables are: " + listed(all_tables(), ", ") : "; near: " + listed(near, ", ")));
}

}  // namespace

std::string key_page(const std::string& prefix) {
  std::string page, open_table;
  LoadedConfig loaded;
  family_named(loaded.config.train.model).settle_defaults(loaded);  // what follows from the model is its own
  visit_keys(loaded.config, [&](const std::string& table, const std::string& name, const auto& member,
                                const std::string& allowed, const char* meaning) {
    if (!(table + "." + name).starts_with(prefix)) return;
    if (table != open_table) {
      page += (page.empty() ? "[" : "\n[") + table + "]\n";
      open_table = table;
    }
    page += key_text(name, toml_text(member), wanted(member, allowed));
    if (*meaning != '\0') page += entry("", meaning_column, meaning);
  });
  if (page.empty()) none_begins_with(prefix);
  return page;
}

}  // namespace dtk
