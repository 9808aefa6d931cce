// Ten kinds of garment made of simple shapes, drawn with random jitter.
#pragma once
#include <array>
#include <cstdint>

#include "toolkit/data/image.h"

namespace garments {

inline constexpr int64_t side = 28;  // pixels

/// Class folders in the order of their labels.
inline constexpr std::array<const char*, 10> class_names = {
    "0-tshirt", "1-trouser", "2-pullover", "3-dress", "4-coat",
    "5-sandal", "6-shirt",   "7-sneaker",  "8-bag",   "9-boot"};

/// A grey image of side x side pixels on black, white on top: a pure function of its arguments.
dtk::Image draw(int64_t garment, uint64_t seed, uint64_t number);

}  // namespace garments
