// The scales of a driving model's inputs in a file of their own: normalization.json, as the original reads
// it beside its weights.
//
// {"ego": {"mean": [10, 0, 0, 0], "std": [20, 20, 1, 1]}, "neighbor": ..., "lanes": ..., ...}: "ego" and
// "neighbor" are the scale of trajectories, all other keys arrays of FrameBatch.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "toolkit/families/diffusion_planner/inputs.h"
#include "toolkit/families/diffusion_planner/layout.h"
#include "toolkit/io/file_system.h"

namespace dtk::diffusion_planner {

/// The scales of all arrays that frames of this layout have and that are normalised, for Normalizer.
///
/// Those of trajectories, of the ego's state, of neighbours and of line strings must be the published ones
/// (published_scales(), pose_scale()), because losses and sampler compute in these units; those of all
/// other arrays may be any. Arrays that the layout has not may have a scale, which is checked and left out.
///
/// Throws DataError naming the file, the key, what was seen and what is allowed: no such file, no JSON, a key
/// that is missing or unknown, a list of another length than the array has features, an entry that is no
/// number finite in float32, a std that is not above 0, a scale that must be the published one and is not.
std::map<std::string, FeatureScale> read_normalization(FileSystem& files, const std::filesystem::path& path,
                                                       FrameLayout layout, const FrameSizes& sizes);

/// A file of these scales and of the published one of trajectories, which the original reads too. Every
/// number reads back as it was.
std::string normalization_text(const std::map<std::string, FeatureScale>& scales);

}  // namespace dtk::diffusion_planner
