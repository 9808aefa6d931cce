// Pictures as CLIP takes them.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>

#include "toolkit/data/image.h"
#include "toolkit/families/llava/options.h"

namespace dtk::llava {

/// The `side` x `side` picture that CLIP's processor makes of `image` (RGB): `crop`: the shorter side becomes
/// `side`, bicubic, the longer one in proportion, rounded down, and the middle is taken; `pad`: the image is
/// laid on a square of the mean colour first.
Image clip_picture(const Image& image, int64_t side, AspectRatio aspect_ratio);

/// Reads `file` into `into` (3, S, S), fp32, less CLIP's mean and over its deviation. Throws DataError that
/// names the file.
void read_picture(const std::filesystem::path& file, AspectRatio aspect_ratio, const at::Tensor& into);

}  // namespace dtk::llava
