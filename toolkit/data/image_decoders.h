// The decoders behind decode_image(). JPEG and PNG are libjpeg's and libpng's (jpeg.cpp, png.cpp) where
// CMake's DTK_IMAGE_LIBRARIES found them, otherwise stb_image's (stb.cpp), as BMP always is; WebP is
// libwebp's (webp.cpp) where that was found.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "toolkit/data/image.h"

namespace dtk {

struct ImageHeader {
  ImageSize size;          // as decode() writes it, not yet turned
  int components = 0;      // stored: 4 in a CMYK JPEG, 1 with a palette
  bool is_16_bit = false;  // stored; decode() writes the upper 8, rounded
  bool is_animated = false;
  bool is_cmyk = false;  // decode() writes four inks, 255 for none
};

/// Why a file cannot be decoded, without its name.
struct Undecodable {
  std::string reason;
};

/// Of one format. Both functions throw Undecodable, and read and write nothing out of bounds whatever
/// `encoded` holds.
struct ImageDecoder {
  /// Memory does not depend on what the header says.
  ImageHeader (*header)(std::string_view encoded);
  /// Writes (height, width, channels) of header().size. More than that much data, or less, is an error;
  /// beside `pixels` it takes at most some eight bytes for each of their bytes.
  void (*decode)(std::string_view encoded, const ImageSize& size, uint8_t* pixels);
};

extern const ImageDecoder jpeg_decoder, png_decoder, bmp_decoder;
#ifdef DTK_WEBP
extern const ImageDecoder webp_decoder;
#endif

}  // namespace dtk
