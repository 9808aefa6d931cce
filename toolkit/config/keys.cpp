#include "toolkit/config/keys.h"

#include <algorithm>
#include <any>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "toolkit/core/format.h"

namespace dtk {
namespace {

std::string with_limits(const std::string& type, const std::string& joint, const std::string& allowed) {
  return allowed.empty() ? type : type + joint + allowed;
}

std::vector<KeyInfo> collect_keys() {
  std::vector<KeyInfo> keys;
  std::set<std::string> seen;
  RunConfig config;
  visit_keys(config, [&](const std::string& table, const std::string& name, auto& member,
                         const std::string& allowed, const auto&...) {
    using Member = std::decay_t<decltype(member)>;
    constexpr bool string =
        std::is_same_v<Member, std::string> || std::is_same_v<Member, std::optional<std::string>>;
    constexpr bool text = string || std::is_same_v<Member, policies::Enabled> ||
                          std::is_same_v<Member, policies::SegmentKeeps> ||
                          std::is_same_v<Member, policies::ByteCount> ||
                          std::is_same_v<Member, std::optional<ByteSize>>;
    if (!seen.insert(table + "." + name).second)
      throw std::logic_error(fmt::format("two options have the key {}.{}", table, name));
    keys.push_back(
        {table + "." + name, table, allowed, wanted(member, allowed), text, string && allowed.empty()});
  });
  return keys;
}

std::vector<std::string> collect_tables() {
  std::vector<std::string> tables;
  for (const KeyInfo& info : all_keys()) {
    if (tables.empty() || tables.back() != info.table) tables.push_back(info.table);
  }
  return tables;
}

std::set<std::string> collect_common_tables() {
  std::set<std::string> tables;
  RunConfig config;
  RunConfig::tables(config, [&](const std::string& table, const auto&) { tables.insert(table); });
  return tables;
}

// Those of all runs in which a family has keys of its own. A walk over families makes texts of all their
// keys: for each table it would be most of the time of a plan's configuration.
const std::set<std::string>& shared_tables() {
  static const std::set<std::string> tables = [] {
    std::set<std::string> shared;
    RunConfig config;
    FamilyOptions::fields(config.families, [&](const std::string& table, const auto&...) {
      if (is_common_table(table)) shared.insert(table);
    });
    return shared;
  }();
  return tables;
}

}  // namespace

void visit_all_fields(RunConfig& config, const KeyVisit& visit) {
  const auto visit_families = [&](const std::function<bool(const std::string&)>& is_wanted) {
    FamilyOptions::fields(config.families,
                          [&](const std::string& table, const std::string& name, auto& member,
                              const std::string& allowed, const char* meaning) {
                            if (is_wanted(table)) visit(table, name, &member, allowed, meaning);
                          });
  };
  RunConfig::tables(config, [&](const std::string& table, auto& options) {
    using Options = std::decay_t<decltype(options)>;
    if constexpr (std::is_same_v<Options, FamilyOptions>) {
      visit_families([](const std::string& other) { return !is_common_table(other); });
    } else {
      policies::visit_as_keys(options,
                              [&](const std::string& name, auto& member, const std::string& allowed,
                                  const char* meaning) { visit(table, name, &member, allowed, meaning); });
      if (shared_tables().count(table) > 0)
        visit_families([&](const std::string& other) { return other == table; });
    }
  });
}

void copy_keys(const RunConfig& from, RunConfig& to, const std::vector<std::string>& names) {
  std::map<std::string, std::any> values;
  visit_keys(from, [&](const std::string& table, const std::string& name, const auto& member,
                       const auto&...) { values[table + "." + name] = member; });
  visit_keys(to, [&](const std::string& table, const std::string& name, auto& member, const auto&...) {
    const std::string key = table + "." + name;
    if (std::find(names.begin(), names.end(), key) == names.end()) return;
    member = std::any_cast<std::decay_t<decltype(member)>>(values.at(key));
  });
}

bool is_common_table(const std::string& table) {
  static const std::set<std::string> tables = collect_common_tables();
  return tables.count(table) > 0;
}

const std::vector<KeyInfo>& all_keys() {
  static const std::vector<KeyInfo> keys = collect_keys();
  return keys;
}

const KeyInfo* find_key(const std::string& key) {
  for (const KeyInfo& info : all_keys()) {
    if (info.key == key) return &info;
  }
  return nullptr;
}

const std::vector<std::string>& all_tables() {
  static const std::vector<std::string> tables = collect_tables();
  return tables;
}

bool has_keys(const std::string& table) {
  const std::vector<std::string>& tables = all_tables();
  return std::find(tables.begin(), tables.end(), table) != tables.end();
}

bool is_table(const std::string& key) {
  const auto is_or_holds = [&](const std::string& table) {
    return table == key || table.compare(0, key.size() + 1, key + ".") == 0;
  };
  return std::any_of(all_tables().begin(), all_tables().end(), is_or_holds);
}

std::string wanted(const bool&, const std::string&) {
  return "true or false";
}
std::string wanted(const int64_t&, const std::string& allowed) {
  return with_limits("an integer", " in ", allowed);
}
std::string wanted(const double&, const std::string& allowed) {
  return with_limits("a number", " in ", allowed);
}
std::string wanted(const std::string&, const std::string& allowed) {
  if (is_purpose(allowed)) return "a string " + allowed;
  return allowed.empty() ? "a string" : "one of " + allowed;
}
std::string wanted(const policies::Enabled&, const std::string& allowed) {
  return "one of " + allowed;
}
std::string wanted(const std::vector<std::string>&, const std::string& allowed) {
  return with_limits("a list of strings, such as [\"layers.*\"]", "; ", allowed);
}
std::string wanted(const std::array<double, 4>&, const std::string& allowed) {
  return with_limits("a list of four numbers", ", each in ", allowed);
}
std::string wanted(const std::array<int64_t, 4>&, const std::string& allowed) {
  return with_limits("a list of four integers", ", each in ", allowed);
}
std::string wanted(const policies::SegmentKeeps&, const std::string& allowed) {
  return "one of " + allowed;
}
std::string wanted(const policies::ByteCount&, const std::string&) {
  return "a number of bytes, such as \"1MiB\", \"4kB\" or 1048576";
}
std::string wanted(const ByteSize&, const std::string&) {
  return "a number of bytes, such as \"24GB\", \"24GiB\" or \"24e9\", or \"80%\" of the device present";
}

}  // namespace dtk
