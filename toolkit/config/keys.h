// All keys of a run configuration, and walks over them.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "toolkit/config/config.h"

namespace dtk {

/// Whether what is allowed of a string is no choice but says what it is for.
inline bool is_purpose(const std::string& allowed) {
  return allowed.starts_with('(');
}

/// Whether all runs have the table, whatever they train.
bool is_common_table(const std::string& table);

/// A pointer to a key's value: of the types that families' keys have, and of three that only keys of all runs
/// have.
template <class... OfFamilies>
std::variant<OfFamilies..., policies::SegmentKeeps*, policies::ByteCount*, std::optional<ByteSize>*>
with_common_types(const std::variant<OfFamilies...>&);
using KeyMember = decltype(with_common_types(std::declval<OptionField>()));

using KeyVisit = std::function<void(const std::string& table, const std::string& name, KeyMember member,
                                    const std::string& allowed, const char* meaning)>;
/// Every field of every table, in printing order: what families have of a common table after what all runs
/// have of it. Enums come as texts. Not a template, so that a walk costs code for each type of member and not
/// for each field.
void visit_all_fields(RunConfig& config, const KeyVisit& visit);

/// visit_all_fields() with the member itself, which is const where `config` is.
template <class Config, class Visit>
void visit_keys(Config& config, Visit&& visit) {
  visit_all_fields(const_cast<RunConfig&>(config),
                   [&](const std::string& table, const std::string& name, KeyMember field,
                       const std::string& allowed, const char* meaning) {
                     policies::visit_member<Config>(
                         field, [&](auto& member) { visit(table, name, member, allowed, meaning); });
                   });
}

/// Gives the keys `names`, full ones, of `to` their values in `from`.
void copy_keys(const RunConfig& from, RunConfig& to, const std::vector<std::string>& names);

struct KeyInfo {
  std::string key;      // "data.batch"
  std::string table;    // "data"
  std::string allowed;  // "[1, inf)"
  std::string wanted;   // "an integer in [1, inf)"
  bool is_text;         // a bare word can be meant as its value
  bool is_any_text;     // and whatever it reads like, it is a text: a path, a name
};

const std::vector<KeyInfo>& all_keys();
const KeyInfo* find_key(const std::string& key);  ///< null if unknown

/// Tables in printing order: "train", ..., "policies.ema".
const std::vector<std::string>& all_tables();
/// Also true for a table of tables: "policies".
bool is_table(const std::string& key);
/// A table with keys, not one of tables.
bool has_keys(const std::string& table);

/// What a field of this type and limits accepts, for messages.
std::string wanted(const bool&, const std::string& allowed);
std::string wanted(const int64_t&, const std::string& allowed);
std::string wanted(const double&, const std::string& allowed);
std::string wanted(const std::string&, const std::string& allowed);
std::string wanted(const policies::Enabled&, const std::string& allowed);
std::string wanted(const std::vector<std::string>&, const std::string& allowed);
std::string wanted(const std::array<double, 4>&, const std::string& allowed);
std::string wanted(const std::array<int64_t, 4>&, const std::string& allowed);
std::string wanted(const policies::SegmentKeeps&, const std::string& allowed);
std::string wanted(const policies::ByteCount&, const std::string& allowed);
std::string wanted(const ByteSize&, const std::string& allowed);
template <class T>
std::string wanted(const std::optional<T>&, const std::string& allowed) {
  return wanted(T{}, allowed);
}

}  // namespace dtk
