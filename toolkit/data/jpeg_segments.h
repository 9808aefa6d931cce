// The marker segments of a JPEG, without decoding it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace dtk {

bool is_jpeg(std::string_view encoded);

/// Calls visit(marker, segment) for each marker segment, whose first two bytes are its length; entropy-coded
/// data are passed over. False if the file ends before its end marker. Stops, with true, when `visit` returns
/// false.
bool walk_jpeg(std::string_view jpeg, const std::function<bool(uint64_t, std::string_view)>& visit);

/// Components of a JPEG, 4 for CMYK; 0 for any other content or without a frame header.
int jpeg_components(std::string_view encoded);

/// How the camera was held: the orientation of the Exif block (tag 0x0112 of its first directory; CIPA
/// DC-008, 4.6.4), 1 to 8. 1, upright, for any other content, without the tag, or where the block is damaged.
int jpeg_orientation(std::string_view encoded);

}  // namespace dtk
