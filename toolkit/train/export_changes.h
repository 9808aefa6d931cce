// What dit-export was asked to change.
#pragma once
#include <string>

namespace dtk {

/// What of weights is changed where they are written for other programs.
struct ExportChanges {
  bool merge = false;     // adapters are joined with the weights that they lie beside
  std::string pack = {};  // how matrices are packed, by a word of the family; "": not at all
};

}  // namespace dtk
