#include "toolkit/families/llava/pictures.h"

#include <algorithm>
#include <array>

#include "toolkit/core/text.h"
#include "toolkit/io/file_system.h"

namespace dtk::llava {
namespace {

constexpr int64_t kChannels = 3;
constexpr std::array<float, kChannels> kMean{0.48145466F, 0.4578275F, 0.40821073F};
constexpr std::array<float, kChannels> kDeviation{0.26862954F, 0.26130258F, 0.27577711F};
constexpr uint64_t kMaxPictureBytes = uint64_t{256} << 20;

// `part` laid on `onto` with its first pixel at (top, left); what lies outside is left out.
void lay(const Image& part, int64_t top, int64_t left, Image& onto) {
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(part.height, onto.height - top); ++y) {
    const int64_t from = std::max<int64_t>(0, -left), to = std::min(part.width, onto.width - left);
    std::copy_n(part.pixels.begin() + (y * part.width + from) * kChannels, (to - from) * kChannels,
                onto.pixels.begin() + ((y + top) * onto.width + left + from) * kChannels);
  }
}

Image ground(int64_t side) {
  Image square{side, side, kChannels, {}};
  square.pixels.resize(static_cast<size_t>(side * side * kChannels));
  for (size_t i = 0; i < square.pixels.size(); ++i)
    square.pixels[i] = static_cast<uint8_t>(kMean[i % kChannels] * 255);
  return square;
}

}  // namespace

Image clip_picture(const Image& image, int64_t side, AspectRatio aspect_ratio) {
  const int64_t longer = std::max(image.height, image.width), shorter = std::min(image.height, image.width);
  if (aspect_ratio == AspectRatio::pad && longer != shorter) {
    Image square = ground(longer);
    lay(image, (longer - image.height) / 2, (longer - image.width) / 2, square);
    return resize_bicubic(square, side, side);
  }
  const auto scaled = [&](int64_t length) { return length == shorter ? side : side * length / shorter; };
  const Image resized = resize_bicubic(image, scaled(image.height), scaled(image.width));
  Image square{side, side, kChannels, std::vector<uint8_t>(static_cast<size_t>(side * side * kChannels))};
  lay(resized, -((resized.height - side) / 2), -((resized.width - side) / 2), square);
  return square;
}

void read_picture(const std::filesystem::path& file, AspectRatio aspect_ratio, const at::Tensor& into) {
  std::string encoded;
  try {
    encoded = posix_file_system().read(file, kMaxPictureBytes);
  } catch (const FileError& error) {
    throw DataError(error.what());
  }
  const int64_t side = into.size(-1);
  const Image image = clip_picture(decode_image(encoded, shown(file), Convert::rgb), side, aspect_ratio);
  float* const values = into.mutable_data_ptr<float>();
  for (int64_t i = 0; i < side * side; ++i) {
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto channel = static_cast<size_t>(c);
      const float value = static_cast<float>(image.pixels[static_cast<size_t>(i * kChannels + c)]) / 255.0F;
      values[c * side * side + i] = (value - kMean[channel]) / kDeviation[channel];
    }
  }
}

}  // namespace dtk::llava
