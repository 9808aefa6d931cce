#include "diffusion_planner/frame_writer.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "toolkit/io/dtypes.h"

namespace scenes {
namespace {

using namespace dtk;
using namespace dtk::diffusion_planner;

void check(const NpzArray& array, const at::Tensor& tensor, int64_t row) {
  const std::string name = "write_frame: " + array.key;
  if (!tensor.defined()) throw std::invalid_argument(name + " is missing");
  const auto dimensions = static_cast<int64_t>(array.shape.size()) + 1;
  if (tensor.scalar_type() != array.type || tensor.dim() != dimensions) {
    throw std::invalid_argument(
        name + " is " + dtype_name(tensor.scalar_type()) + " of " + std::to_string(tensor.dim()) +
        " dimensions; allowed: " + dtype_name(array.type) + " of " + std::to_string(dimensions));
  }
  if (row < 0 || row >= tensor.size(0)) {
    throw std::out_of_range(name + ": row " + std::to_string(row) + " of " + std::to_string(tensor.size(0)));
  }
}

}  // namespace

void write_frame(FileSystem& files, const std::filesystem::path& path, const FrameBatch& batch, int64_t row,
                 const FrameWriting& writing) {
  const std::vector<NpzArray> arrays = frame_arrays(writing.layout, {});  // for keys, dtypes and dimensions
  const auto visit_arrays = [&](const auto& use) {
    auto array = arrays.begin();
    FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
      if (array == arrays.end() || array->key != key) return;
      use(*array, tensor);
      ++array;
    });
  };
  visit_arrays([&](const NpzArray& array, const at::Tensor& tensor) { check(array, tensor, row); });
  const std::unique_ptr<WritableFile> file = files.create(path);
  NpzWriter npz(*file, writing.packing);
  if (writing.layout == FrameLayout::version_2) {
    npz.add("version", at::full({1}, static_cast<int64_t>(kFrameVersion), at::kLong).to(at::kUInt32));
  }
  visit_arrays(
      [&](const NpzArray& array, const at::Tensor& tensor) { npz.add(array.key, tensor.select(0, row)); });
  npz.finish();
  file->close();
}

}  // namespace scenes
