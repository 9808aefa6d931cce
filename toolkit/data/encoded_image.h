// What an encoded image says that its decoder does not, found without decoding it.
#pragma once
#include <string>
#include <string_view>

namespace dtk {

/// Damage that the decoder would pass over, as it fills what is missing with grey and compares no checksum:
/// what is wrong with a PNG (a chunk whose checksum differs, no end), a JPEG (a table, no end) or a BMP
/// (fewer rows than its header says); "" if nothing is, or for any other content.
std::string image_damage(std::string_view encoded);

/// What is wrong with the tables of a JPEG that come before its picture: more than 256 Huffman codes, as
/// which the decoder (stb_image 2.27, of Debian 12) would write behind its own. To be asked before the
/// decoder looks for a size; image_damage() asks it of all tables. "" if nothing is, or for any other
/// content.
std::string jpeg_header_damage(std::string_view encoded);

/// Components of a JPEG, 4 for CMYK; 0 for any other content or without a frame header.
int jpeg_components(std::string_view encoded);

/// How the camera was held: the orientation of the Exif block (tag 0x0112 of its first directory; CIPA
/// DC-008, 4.6.4), 1 to 8. 1, upright, for any other content, without the tag, or where the block is damaged.
int jpeg_orientation(std::string_view encoded);

}  // namespace dtk
