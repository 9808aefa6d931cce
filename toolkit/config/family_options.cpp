#include "toolkit/config/family_options.h"

#include "toolkit/config/families.h"

namespace dtk {

FamilyOptions::FamilyOptions() {
  for (const ConfiguredFamily* const family : families()) {
    if (auto tables = family->new_options()) tables_.all.push_back(std::move(tables));
  }
}

}  // namespace dtk
