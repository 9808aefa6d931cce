// Results that wait for modules which read them later, free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>

namespace dtk::policies {

/// Made ready for the reader where they arise, which a model does where that makes them smaller; as they are;
/// or with those beside them that nobody reads. `models/` spells it likewise.
enum class Taps { projected, tapped, all };
constexpr auto enum_texts(Taps) {
  return std::array{"projected", "tapped", "all"};
}

}  // namespace dtk::policies
