// Images of any size brought to the size of a model.
#pragma once
#include <cstdint>

#include "toolkit/data/image.h"

namespace dtk {

/// `image` at another size: separable bicubic (a = -0.5) whose support grows with the reduction, so that it
/// is antialiased. Equal to Pillow's Image.resize(BICUBIC) to the bit: horizontal pass first, weights rounded
/// to 22 fractional bits, each pass rounded to bytes. Throws std::invalid_argument for sizes below 1.
Image resize_bicubic(const Image& image, int64_t height, int64_t width);

/// The middle `size` x `size` pixels after the shorter side is resized to `size` and the longer one in
/// proportion, rounded; an image of exactly that size is left as it is.
Image resize_and_crop(const Image& image, int64_t size);

}  // namespace dtk
