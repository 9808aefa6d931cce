// Cameras, depths and points of a folder of pictures, as dit-sample asks for them.
#pragma once
#include <memory>

#include "toolkit/train/drawing.h"

namespace dtk::vggt {

SampleUsage pictures_usage();

/// What the heads of --heads make of --images, in the folder --out (scene_files.h). Throws ConfigError if
/// that holds some already, DataError for pictures that cannot be read.
std::unique_ptr<Drawing> draw_scene(FileSystem& files, const SampleSource& source,
                                    const SampleArguments& arguments);

}  // namespace dtk::vggt
