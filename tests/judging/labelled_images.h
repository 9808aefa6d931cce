// Images with the class each shows, or was asked to show.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>

#include "toolkit/data/image_source.h"
#include "toolkit/io/file_system.h"

namespace dtk::judging {

struct LabelledImages {
  at::Tensor images;  // (N, 1, 28, 28), float32, CPU; -1 is black, 1 is white
  at::Tensor labels;  // (N), int64, CPU, each in [0, 10)
};

/// All samples of a source, in its order.
LabelledImages read_all(const ImageSource& source);

/// Samples first .. first + count - 1, as views.
LabelledImages part(const LabelledImages& all, int64_t first, int64_t count);

/// The samples of a safetensors file that holds "samples" (N, 1, 28, 28) float32 and "labels" (N) int64, with
/// N at least 2. Throws DataError for anything else in either of them, a value that is not finite included.
LabelledImages read_samples(FileSystem& files, const std::filesystem::path& path);

/// Share of pixel values outside [-1, 1], in [0, 1].
double share_out_of_range(const LabelledImages& samples);

/// The four files of Fashion-MNIST. Throw DataError for files that are missing or damaged.
std::shared_ptr<const ImageSource> open_training_set(const std::filesystem::path& folder);
std::shared_ptr<const ImageSource> open_test_set(const std::filesystem::path& folder);

/// "" if all four files are in `folder`, else a sentence that names the missing one and what to do.
std::string missing_dataset(FileSystem& files, const std::filesystem::path& folder);

}  // namespace dtk::judging
