// MNIST-style IDX files.
#pragma once
#include <filesystem>
#include <memory>

#include "toolkit/data/image_source.h"

namespace dtk {

/// Opens a pair of IDX files, each gzip or plain: grey images (magic 0x00000803: count, height, width, then
/// bytes) and their labels (magic 0x00000801: count, then bytes). Images are scaled to [-1, 1], C = 1;
/// classes() is the largest label + 1. All bytes are read here and stay in memory as bytes.
///
/// Throws DataError naming the file when one is missing, damaged, not IDX, empty, shorter or longer than its
/// header says, or when the two do not belong together. Reading stops at the first byte beyond what the
/// header says, and memory grows with what the file holds, not with what its header claims.
std::unique_ptr<ImageSource> open_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels);

}  // namespace dtk
