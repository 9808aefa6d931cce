// Samples of the driving model written as files.
#pragma once
#include <cstdint>
#include <filesystem>

#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/layout.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/npz.h"

namespace scenes {

struct FrameWriting {
  dtk::diffusion_planner::FrameLayout layout = dtk::diffusion_planner::FrameLayout::version_2;
  dtk::NpzWriter::Packing packing = dtk::NpzWriter::Packing::deflated;
};

/// Writes row `row` of `batch` to `path` as numpy.savez_compressed writes it, the arrays of the layout and,
/// in version 2, "version". The sizes are those of the tensors; with all of FrameSizes' neighbours as
/// predicted ones. Not atomic: a file that is cut off is refused by who reads it.
///
/// Throws std::invalid_argument for a tensor that is missing, of another dtype or number of dimensions than
/// in FrameBatch; std::out_of_range for a row; FileError.
void write_frame(dtk::FileSystem& files, const std::filesystem::path& path,
                 const dtk::diffusion_planner::FrameBatch& batch, int64_t row,
                 const FrameWriting& writing = {});

}  // namespace scenes
