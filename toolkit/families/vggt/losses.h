// What a VGGT is trained by: cameras by their numbers, depths weighed by the confidence that the model has in
// them, and the depths' differences of neighbours.
//
//   camera   mean over rounds i = 1 ... n of 0.6^(n-i)·(|T - T*| up to 100 + |q - q*| + |f - f*| / 2), means
//            of the numbers of translation, quaternion and fields of view
//   depth    mean over valid pixels of c·|d - d*| - α·log c + |d - d*|
//   gradient mean over strides 1, 2, 4, over rows and columns, of the valid pairs' |e(p + stride) - e(p)|,
//            e = d - d*, of pixels that are a multiple of the stride
//
// Valid are pixels whose d* is above 0. Nothing is read on the host.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "toolkit/families/vggt/options.h"

namespace dtk::vggt {

/// `rounds`: poses (B, S, 9), the last best; `wanted` (B, S, 9).
at::Tensor camera_loss(const std::vector<at::Tensor>& rounds, const at::Tensor& wanted);

/// Depths, their confidence and what is wanted: (B, S, H, W).
at::Tensor depth_loss(const at::Tensor& depths, const at::Tensor& confidence, const at::Tensor& wanted,
                      const LossOptions& options);

}  // namespace dtk::vggt
