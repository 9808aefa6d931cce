// Damage of encoded images that the decoder would pass over: it fills what is missing with grey and compares
// no checksum.
#pragma once
#include <string>
#include <string_view>

namespace dtk {

/// What is wrong with a PNG (a chunk whose checksum differs, no end), a JPEG (no end) or a BMP (fewer rows
/// than its header says); "" if nothing is, or for any other content.
std::string image_damage(std::string_view encoded);

}  // namespace dtk
