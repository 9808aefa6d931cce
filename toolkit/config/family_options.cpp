#include "toolkit/config/family_options.h"

#include <algorithm>

#include "toolkit/config/families.h"

namespace dtk {

FamilyOptions::FamilyOptions() {
  for (const ConfiguredFamily* const family : families()) {
    if (auto tables = family->new_options()) all_.push_back(std::move(tables));
  }
}

FamilyOptions::FamilyOptions(const FamilyOptions& other) {
  for (const auto& tables : other.all_) all_.push_back(tables->copy());
}

bool operator==(const FamilyOptions& a, const FamilyOptions& b) {
  return std::equal(a.all_.begin(), a.all_.end(), b.all_.begin(), b.all_.end(),
                    [](const auto& one, const auto& other) { return one->equals(*other); });
}

}  // namespace dtk
