#include "toolkit/config/families.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "toolkit/config/config.h"
#include "toolkit/config/keys.h"
#include "toolkit/core/range.h"

namespace dtk {
namespace {

struct Registered {
  std::vector<const ConfiguredFamily*> families;
  bool listed = false;
};

// Static objects of other files may register theirs before main().
Registered& registered() {
  static Registered all;
  return all;
}

std::vector<const ConfiguredFamily*> list_families() {
  std::vector<const ConfiguredFamily*> all = built_in_families();
  const auto& more = registered().families;
  all.insert(all.end(), more.begin(), more.end());
  registered().listed = true;
  const auto rank = [first = TrainOptions().model](const ConfiguredFamily* family) {
    return std::make_pair(family->name() != first, family->name());
  };
  std::sort(all.begin(), all.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
  const auto twice =
      std::adjacent_find(all.begin(), all.end(), [](auto* a, auto* b) { return a->name() == b->name(); });
  if (twice != all.end()) throw std::logic_error("two model families are called " + (*twice)->name());
  return all;
}

std::map<std::string, const ConfiguredFamily*> list_owners() {
  std::map<std::string, const ConfiguredFamily*> owners;
  for (const ConfiguredFamily* const family : families()) {
    const auto tables = family->new_options();
    if (!tables) continue;
    tables->visit_fields([&](const std::string& table, const std::string& name, const OptionField&,
                             const auto&...) { owners[table + "." + name] = family; });
  }
  return owners;
}

// Each once.
template <class TextOf>
std::string choices_of(const TextOf& text_of) {
  std::string choices;
  for (const ConfiguredFamily* const family : families()) {
    std::istringstream words(text_of(*family));
    for (std::string word; words >> word;) {
      if (word != "|" && !is_choice(choices, word)) choices += (choices.empty() ? "" : " | ") + word;
    }
  }
  return choices;
}

}  // namespace

void register_family(const ConfiguredFamily& family) {
  if (registered().listed)
    throw std::logic_error("the model family " + family.name() + " is registered after the list was read");
  registered().families.push_back(&family);
}

const std::vector<const ConfiguredFamily*>& families() {
  static const std::vector<const ConfiguredFamily*> all = list_families();
  return all;
}

const ConfiguredFamily& family_named(const std::string& name) {
  for (const ConfiguredFamily* const family : families()) {
    if (family->name() == name) return *family;
  }
  throw std::invalid_argument("no model family is called " + name);
}

bool ConfiguredFamily::may_change_on_resume(const std::string& key) const {
  return is_common_table(find_key(key)->table);
}

const ConfiguredFamily* owner_of(const std::string& key) {
  static const std::map<std::string, const ConfiguredFamily*> owners = list_owners();
  const auto found = owners.find(key);
  return found == owners.end() ? nullptr : found->second;
}

const std::string& family_choices() {
  static const std::string choices = choices_of([](const ConfiguredFamily& family) { return family.name(); });
  return choices;
}

const std::string& data_kind_choices() {
  static const std::string choices =
      choices_of([](const ConfiguredFamily& family) { return family.data_kinds(); });
  return choices;
}

}  // namespace dtk
