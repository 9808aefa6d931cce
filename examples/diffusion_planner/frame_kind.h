// What a file of the driving model says of its own sizes.
#pragma once
#include <filesystem>

#include "toolkit/families/diffusion_planner/layout.h"

namespace scenes {

struct FrameKind {
  dtk::diffusion_planner::FrameLayout layout = dtk::diffusion_planner::FrameLayout::version_2;
  dtk::diffusion_planner::FrameSizes sizes;
};

/// Of the frame in `file`, by the shapes in its headers; its values are not read. Throws dtk::DataError as
/// dtk::NpzReader, and for a shape that no frame has.
FrameKind frame_kind(const std::filesystem::path& file);

}  // namespace scenes
