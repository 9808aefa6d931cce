// Images for machines that lack the data set: ten kinds of garment made of simple shapes, drawn with random jitter.
#pragma once
#include "toolkit/data/pixel_source.h"

namespace dtk {

/// 4000 grey images of 28x28, white on black, always the same; ten classes in turns, as Fashion-MNIST numbers them.
/// `instead_of`: the file that is missing, for the description.
PixelData draw_garments(const std::string& instead_of);

}  // namespace dtk
