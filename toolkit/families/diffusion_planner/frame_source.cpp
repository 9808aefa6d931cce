#include "toolkit/families/diffusion_planner/frame_source.h"

#include <stdexcept>
#include <string_view>

namespace dtk::diffusion_planner {

FrameSource::FrameSource(const std::filesystem::path& folder_or_list, FrameOptions options)
    : frames_(folder_or_list, std::move(options)) {}

Batch FrameSource::allocate(int64_t count, bool pinned) const {
  return batch_of(frames_.allocate(count, pinned));
}

void FrameSource::read(int64_t index, uint64_t, const Batch& batch, int64_t row) const {
  frames_.read(index, frame_batch(batch), row);
}

Batch batch_of(FrameBatch frames) {
  Batch batch;
  FrameBatch::fields(
      frames, [&](std::string_view, at::Tensor& tensor) { batch.tensors.push_back(std::move(tensor)); });
  return batch;
}

FrameBatch frame_batch(Batch batch) {
  FrameBatch frames;
  size_t taken = 0;
  FrameBatch::fields(frames, [&](std::string_view, at::Tensor& tensor) {
    if (taken < batch.tensors.size()) tensor = std::move(batch.tensors[taken]);
    ++taken;
  });
  if (taken == batch.tensors.size()) return frames;
  throw std::invalid_argument("diffusion_planner batch: " + std::to_string(batch.tensors.size()) +
                              " tensors; a batch of frames has " + std::to_string(taken));
}

}  // namespace dtk::diffusion_planner
