// How images of other kinds than the model's become its own. Free of LibTorch.
#pragma once
#include <array>

namespace dtk {

/// none: an image must have the model's channels, 8 bits each. rgb: grey, 16 bits, CMYK, a palette or
/// transparency, which is laid on white, become 8-bit RGB.
enum class Convert { none, rgb };
constexpr auto enum_texts(Convert) {
  return std::array{"none", "rgb"};
}

}  // namespace dtk
