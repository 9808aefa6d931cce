// What an encoded image says that its decoder does not, found without decoding it.
#pragma once
#include <string>
#include <string_view>

namespace dtk {

bool is_jpeg(std::string_view encoded);
bool is_png(std::string_view encoded);
bool is_bmp(std::string_view encoded);
bool is_webp(std::string_view encoded);

/// Damage that a decoder would pass over, as it fills what is missing with grey and compares no checksum:
/// what is wrong with a PNG (a chunk whose checksum differs, no end), a JPEG (no end) or a BMP (fewer rows
/// than its header says, or colours that its palette has not, for which stb_image 2.27 takes what its stack
/// holds); "" if nothing is, or for any other content.
std::string image_damage(std::string_view encoded);

/// Tables of a JPEG that stb_image 2.27 does not look at: more than 256 Huffman codes, which it would write
/// behind its own, and a scan before the tables that it is decoded with. "" if nothing is wrong, or for any
/// other content.
std::string jpeg_table_damage(std::string_view encoded);

/// Whether a PNG holds more compressed data than the picture of its header takes; they are inflated, and not
/// kept. "" if not, or for any other content.
std::string png_data_damage(std::string_view encoded);

/// Components of a JPEG, 4 for CMYK; 0 for any other content or without a frame header.
int jpeg_components(std::string_view encoded);

/// How the camera was held: the orientation of the Exif block (tag 0x0112 of its first directory; CIPA
/// DC-008, 4.6.4), 1 to 8. 1, upright, for any other content, without the tag, or where the block is damaged.
int jpeg_orientation(std::string_view encoded);

}  // namespace dtk
