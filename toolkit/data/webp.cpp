#include <webp/decode.h>

#include "toolkit/core/format.h"
#include "toolkit/data/image_decoders.h"

namespace dtk {
namespace {

const uint8_t* bytes_in(std::string_view encoded) {
  return reinterpret_cast<const uint8_t*>(encoded.data());
}

ImageHeader webp_header(std::string_view encoded) {
  WebPBitstreamFeatures features{};
  const VP8StatusCode status = WebPGetFeatures(bytes_in(encoded), encoded.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) throw Undecodable{"it ends too early"};
  if (status != VP8_STATUS_OK) throw Undecodable{"its WebP header is damaged"};
  const int channels = features.has_alpha != 0 ? 4 : 3;
  return {.size = {.channels = channels, .height = features.height, .width = features.width},
          .components = channels,
          .is_animated = features.has_animation != 0};
}

void webp_decode(std::string_view encoded, const ImageSize& size, uint8_t* pixels) {
  const auto row_bytes = static_cast<int>(size.width * size.channels);
  const auto bytes = static_cast<size_t>(size.height * size.width * size.channels);
  const auto decode = size.channels == 4 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode(bytes_in(encoded), encoded.size(), pixels, bytes, row_bytes) == nullptr)
    throw Undecodable{"its WebP data are damaged or end too early"};
}

}  // namespace

const ImageDecoder webp_decoder = {webp_header, webp_decode};

}  // namespace dtk
